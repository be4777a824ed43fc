"""Exports of a history for other tools, compared with the formats that these read."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.history.records import HistoryLine, HistoryMetric
from pytest_modelperf.history.store import HistoryStore
from tests.history.lines import commit_of, make_line
from tests.support.bencher import assert_is_bencher
from tests.support.command import run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.modelperf]\n")
    monkeypatch.chdir(tmp_path)


def write(lines: Iterable[HistoryLine]) -> None:
    HistoryStore(Path("history")).append(lines)


def printed(name: str, *arguments: str) -> str:
    result = run("history", "--format", name, *arguments)
    assert result.exit_code == 0, result.err
    return result.out


# -- Otava


def read_as_otava(text: str, metric: str) -> Mapping[str, list[object]]:
    """The columns, as the importer of Otava 0.8 reads a CSV file.

    Its rules (otava/importer.py, `CsvImporter.fetch_data`): a header with the columns of the test,
    rows at least as long, times that can be parsed, and a number in each cell of a metric.
    """
    header, *rows = csv.reader(text.splitlines())
    assert all(len(row) >= len(header) for row in rows)
    places = {name: header.index(name) for name in ("time", "commit", "verdict", metric)}
    return {
        "time": [dt.datetime.fromisoformat(row[places["time"]]) for row in rows],
        "commit": [row[places["commit"]] for row in rows],
        metric: [float(row[places[metric]]) for row in rows],
    }


def test_otava_gets_the_points_of_one_series() -> None:
    write(make_line(day, 1.0 + day / 10) for day in range(3))
    found = read_as_otava(printed("otava"), "p50")
    assert found["p50"] == pytest.approx([1.0, 1.1, 1.2])
    assert found["commit"] == [commit_of(day) for day in range(3)]
    assert found["time"] == [make_line(day).date for day in range(3)]


def test_otava_itself_reads_it(tmp_path: Path) -> None:
    importer = pytest.importorskip("otava.importer")
    config = pytest.importorskip("otava.test_config")
    write(make_line(day, 1.0 if day < 12 else 1.2, 0.001 * (1 + day % 3)) for day in range(24))
    (tmp_path / "series.csv").write_text(printed("otava"))
    known = config.create_csv_test_config(
        "encoder",
        {
            "file": str(tmp_path / "series.csv"),
            "attributes": ["commit", "verdict"],
            "metrics": {"p50": {"direction": -1}},
        },
    )
    series = importer.CsvImporter().fetch_data(known)
    assert len(series.data["p50"]) == 24
    (change,) = series.analyze().change_points["p50"]
    assert change.index == 12


def test_counts_are_written_as_counts() -> None:
    write([make_line(0, macs=15), make_line(1, macs=18)])
    assert read_as_otava(printed("otava", "--metric", "macs"), "macs")["macs"] == [15.0, 18.0]


def test_several_series_are_refused_as_a_file_for_otava() -> None:
    write([make_line(), make_line(case="b8-c1")])
    refused = run("history", "--format", "otava")
    assert refused.exit_code == 2
    assert "writes one series, and 2 are listed" in refused.err
    assert "--case" in refused.err
    assert len(read_as_otava(printed("otava", "--case", "b8-c1"), "p50")["p50"]) == 1


# -- github-action-benchmark


def test_the_action_gets_the_last_point_of_each_series() -> None:
    write([make_line(0, 1.0, 0.0), make_line(1, 1.1, 0.01), make_line(1, case="b8-c1")])
    assert json.loads(printed("github-action-benchmark")) == snapshot(
        [
            {
                "name": "models/encoder.onnx b1-c1",
                "unit": "x the first point",
                "value": 1.1,
                "range": "± 0.0287",
                "extra": """\
since 2026-01-01
verdict passed
commit 000000001fffffffffffffffffffffffffffffff\
""",
            },
            {
                "name": "models/encoder.onnx b8-c1",
                "unit": "x the first point",
                "value": 1.0,
                "range": "± 0.0000",
                "extra": """\
since 2026-01-02
verdict passed
commit 000000001fffffffffffffffffffffffffffffff\
""",
            },
        ]
    )


@pytest.mark.parametrize("metric", HistoryMetric)
def test_the_action_reads_each_entry(metric: HistoryMetric) -> None:
    """`extractCustomBenchmarkResult` of src/extract.ts takes these keys, with these types.

    `extractRangeInfo` of src/extractRangeInfo.ts reads the number behind the sign.
    """
    write([make_line(0), make_line(1)])
    for entry in json.loads(printed("github-action-benchmark", "--metric", metric.value)):
        assert set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert {"name", "unit", "value"} <= set(entry)
        assert all(isinstance(entry[key], str) for key in set(entry) - {"value"})
        assert isinstance(entry["value"], int | float)
        if "range" in entry:
            width = re.fullmatch(r"± ([0-9.]+)", entry["range"])
            assert width is not None
            assert math.isfinite(float(width[1]))


# -- Bencher


def test_bencher_gets_the_last_point_with_its_interval() -> None:
    write([make_line(0, 1.0), make_line(1, 1.1)])
    found = json.loads(printed("bencher"))
    assert_is_bencher(found)
    ((name, measures),) = found.items()
    assert name == "models/encoder.onnx b1-c1"
    ratio = measures["latency-p50-ratio"]
    assert ratio["value"] == pytest.approx(1.1)
    assert ratio["lower_value"] < 1.1 < ratio["upper_value"]


def test_a_count_has_no_bounds() -> None:
    write([make_line(0, macs=15)])
    found = json.loads(printed("bencher", "--metric", "macs"))
    assert_is_bencher(found)
    assert found == {"models/encoder.onnx b1-c1": {"macs": {"value": 15.0}}}


# -- several machines, and what is refused


def test_series_of_several_machines_keep_their_names_apart() -> None:
    write([make_line(), replace(make_line(), machine="linux-arm-4c")])
    assert sorted(json.loads(printed("bencher"))) == [
        "models/encoder.onnx b1-c1 linux-arm-4c",
        "models/encoder.onnx b1-c1 linux-x86_64-2c",
    ]
    assert list(json.loads(printed("bencher", "--machine", "linux-arm-4c"))) == [
        "models/encoder.onnx b1-c1"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--case", "b9-c9"), "the history has no case b9-c9. There are: b1-c1."),
        (("--machine", "mine"), "no kind of machine mine. There are: linux-x86_64-2c."),
        (("--format", "otava", "--json", "-"), "--format prints to standard output"),
        (("--format", "excel"), "'excel' is not one of"),
    ],
)
def test_missing_entries_are_refused(arguments: tuple[str, ...], message: str) -> None:
    write([make_line()])
    refused = run("history", *arguments)
    assert refused.exit_code == 2
    assert message in " ".join(refused.err.split())
