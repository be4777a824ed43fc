"""`modelperf history`: what it lists, writes and refuses."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.history.page_data import sparkline
from pytest_modelperf.history.records import HISTORY, HistoryLine, HistoryMetric, StoredFigures
from pytest_modelperf.history.store import HistoryStore
from tests.history.lines import commit_of, make_line
from tests.support.command import Result, run
from tests.support.repository import git, needs_git


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project without git, in which all tests here run."""
    (tmp_path / "pyproject.toml").write_text("[tool.modelperf]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stepping(steps: Iterable[float], length: int = 8) -> Iterator[HistoryLine]:
    """Runs at one level after the other, each day one."""
    levels = [level for level in steps for _ in range(length)]
    for day, level in enumerate(levels):
        is_first = day % length == 0 and day > 0
        reasons = ("layer dense: MatMul takes longer",) if is_first else ()
        yield make_line(day, level, verdict="regressed" if is_first else "passed", reasons=reasons)


def write_lines(lines: Iterable[HistoryLine], folder: str = "history") -> None:
    HistoryStore(Path(folder)).append(lines)


def document(*arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run("history", "--json", "-", *arguments).out)
    return content


def test_each_case_has_a_line_and_each_step_its_commits_and_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    write_lines(stepping([1.0, 1.1]))
    assert run("history").out == snapshot("""\
history of latency p50: 1 step in 1 of 1 case
16 points of 1 case of 1 model, from 2026-01-01 to 2026-01-16

Cases

model         case   history           points  since                         change  steps
──────────────────────────────────────────────────────────────────────────────────────────
model…r.onnx  b1-c1  ▁▁▁▁▁▁▁▁████████      16  2026-01-01  +10.0 % (+8.0 … +12.0 %)      1
1 column left out: a wider terminal shows all

Steps
models/encoder.onnx b1-c1: on linux-x86_64-2c: +10.0 % (+9.3 … +10.7 %) between 000000007
  (2026-01-08) and 000000008 (2026-01-09), whose verdict was regressed: layer dense:
  MatMul takes longer
""")


def test_only_the_named_model_is_listed() -> None:
    write_lines([make_line(), replace(make_line(), model="other")])
    assert {case["model"] for case in document()["cases"]} == {"models--encoder", "other"}
    assert [case["model"] for case in document("models/encoder.onnx")["cases"]] == [
        "models--encoder"
    ]
    Path("models").mkdir()
    os.chdir("models")
    assert len(document("encoder.onnx")["cases"]) == 1


def test_points_before_a_day_are_left_out_and_the_chain_stays() -> None:
    write_lines(
        [
            make_line(0, 2.0, baseline="a", digest="b"),
            make_line(5, 1.5, baseline="a"),
            make_line(6, 1.5, baseline="b"),
        ]
    )
    (case,) = document("--since", "2026-01-06")["cases"]
    assert [point["ratio"] for point in case["points"]] == pytest.approx([1.0, 2.0])


def test_exact_figures_step_wherever_they_change() -> None:
    write_lines(make_line(day, macs=100 if day < 5 else 103) for day in range(9))
    (case,) = document("--metric", "macs")["cases"]
    (step,) = case["steps"]
    assert (step["last_commit"], step["first_commit"]) == (commit_of(4), commit_of(5))
    assert step["shift"] == pytest.approx({"change": 0.03, "low": 0.03, "high": 0.03})


def test_the_size_of_a_model_is_listed_since_runs_store_it() -> None:
    """Older lines do not have it."""
    older = [msgspec.to_builtins(make_line(day)) for day in range(2)]
    for line in older:
        del line["figures"]["size_bytes"]
    path = HistoryStore(Path("history")).file("models--encoder", "linux-x86_64-2c")
    path.append_raw(map(msgspec.json.encode, older))
    sizes = [5_000_000, 5_000_000, 6_000_000]
    write_lines(
        replace(make_line(day), figures=StoredFigures(size_bytes=size))
        for day, size in enumerate(sizes, 2)
    )
    (case,) = document("--metric", "size_bytes")["cases"]
    assert [point["ratio"] for point in case["points"]] == pytest.approx([1.0, 1.0, 1.2])
    assert [step["shift"]["change"] for step in case["steps"]] == pytest.approx([0.2])
    rows = run("history", "--metric", "size_bytes", "--csv", "-").out.splitlines()
    assert len(rows) == 1 + len(sizes)
    entries = json.loads(
        run("history", "--metric", "size_bytes", "--format", "github-action-benchmark").out
    )
    assert [(entry["value"], entry["unit"]) for entry in entries] == [(6_000_000, "bytes")]


def test_a_metric_without_points_says_why_and_what_can_be_listed() -> None:
    write_lines([make_line()])
    assert document("--metric", "p95")["cases"] == []
    listed = run("history", "--metric", "p95")
    assert listed.exit_code == 0
    assert "no point has a latency p95" in listed.out
    assert "--metric macs" in listed.out
    listed = run("history", "--metric", "size_bytes")
    assert "not stored yet; the next run will store it" in " ".join(listed.out.split())
    listed = run("history", "--since", "2026-05-01")
    assert listed.exit_code == 0
    assert "no point since 2026-05-01 has a latency p50" in listed.out
    assert "baseline" not in listed.out


@pytest.mark.parametrize("metric", HistoryMetric)
def test_every_metric_can_be_listed(metric: HistoryMetric) -> None:
    write_lines([make_line()])
    assert document("--metric", metric.value)["metric"] == metric.value


def test_the_json_is_of_its_type() -> None:
    write_lines(stepping([1.0, 1.1]))
    found = msgspec.json.decode(run("history", "--json", "-").out, type=HISTORY.json_type)
    (case,) = found.cases
    assert len(case.points) == 16
    assert case.since_first.low < 0.1 < case.since_first.high


def test_the_csv_has_a_row_for_each_point_and_marks_steps() -> None:
    write_lines(stepping([1.0, 1.1]))
    rows = list(csv.DictReader(run("history", "--csv", "-").out.splitlines()))
    assert len(rows) == 16
    assert float(rows[-1]["ratio"]) == pytest.approx(1.1)
    assert float(rows[-1]["low"]) < 1.1 < float(rows[-1]["high"])
    assert [index for index, row in enumerate(rows) if row["is_step"] == "1"] == [8]


def test_the_listing_in_markdown_has_the_same_table() -> None:
    write_lines(stepping([1.0, 1.1]))
    text = run("history", "--markdown", "-").out
    assert text.startswith("### history of latency p50: 1 step in 1 of 1 case\n")
    assert "| model | case | history | points | since | change | steps | machine |" in text


@pytest.mark.parametrize(
    ("level", "error", "exit_code"),
    [(1.15, 0.005, 1), (1.11, 0.01, 0), (1.15, 0.05, 0), (0.5, 0.005, 0)],
    ids=["shown", "not shown", "uncertain", "faster"],
)
def test_a_drift_fails_only_if_it_is_shown(level: float, error: float, exit_code: int) -> None:
    write_lines([make_line(0, 1.0, error), make_line(1, level, error)])
    result = run("history", "--fail-on-drift", "10%")
    assert result.exit_code == exit_code
    assert ("drift: models/encoder.onnx b1-c1 is +15.0 %" in result.out) is bool(exit_code)


@pytest.mark.parametrize(("macs", "exit_code"), [(21_000, 0), (21_001, 1)])
def test_a_count_that_grew_by_exactly_what_is_allowed_has_not_drifted(
    macs: int, exit_code: int
) -> None:
    write_lines([make_line(0, macs=20_000), make_line(1, macs=macs)])
    assert run("history", "--metric", "macs", "--fail-on-drift", "5%").exit_code == exit_code


def test_a_drift_is_reported_on_standard_error_with_a_document_on_standard_output() -> None:
    write_lines([make_line(0, 1.0), make_line(1, 1.2)])
    result = run("history", "--fail-on-drift", "0.1", "--json", "-")
    assert result.exit_code == 1
    assert "drift:" in result.err
    json.loads(result.out)


def test_many_small_steps_are_a_drift() -> None:
    """Each model is 2 % slower than the one before, which is its baseline."""
    write_lines(
        make_line(day, 1.02, 0.002, baseline=f"{day}", digest=f"{day + 1}") for day in range(12)
    )
    assert run("history", "--fail-on-drift", "10%").exit_code == 1
    assert run("history", "--fail-on-drift", "40%").exit_code == 0


@needs_git
@pytest.mark.parametrize("annotated", [(), ("-m", "first")], ids=["light", "annotated"])
def test_the_change_since_the_last_tag_begins_at_its_commit(
    project: Path, annotated: tuple[str, ...]
) -> None:
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one", date="2026-01-03T12:00:00Z")
    git(project, "tag", "v1.0", *annotated, date="2026-01-03T12:00:00Z")
    tagged = git(project, "rev-parse", "HEAD")
    at_tag = replace(make_line(5, 2.0), commit=tagged)
    write_lines([make_line(0, 1.0), make_line(1, 4.0), at_tag, make_line(6, 3.0)])
    found = document()
    assert found["tag"] == "v1.0"
    assert found["cases"][0]["since_tag"]["change"] == pytest.approx(0.5)
    assert "since v1.0" in run("history").out


@needs_git
def test_a_tag_without_a_date_is_passed_over(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one")
    commit = git(project, "rev-parse", "HEAD")
    # The oldest tags of Linux are like this: they have no tagger.
    tag = f"object {commit}\ntype commit\ntag v0\n\nzero\n"
    digest = git(project, "hash-object", "-t", "tag", "-w", "--literally", "--stdin", given=tag)
    git(project, "update-ref", "refs/tags/v0", digest)
    write_lines([make_line(0, 1.0), make_line(1, 2.0)])
    assert document()["tag"] is None


@needs_git
def test_a_tag_without_a_run_of_its_commit_begins_at_the_run_before_it(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one", date="2026-01-03T12:00:00Z")
    git(project, "tag", "v1.0")
    write_lines([make_line(0, 1.0), make_line(1, 2.0), make_line(6, 3.0)])
    assert document()["cases"][0]["since_tag"]["change"] == pytest.approx(0.5)


def test_the_table_of_the_project_names_the_folder(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.modelperf]\nhistory = "kept"\n')
    write_lines([make_line()], "kept")
    assert len(document()["cases"]) == 1
    write_lines([make_line(), make_line(case="b8-c1")], "other")
    assert len(document("--dir", "other")["cases"]) == 2


def test_skipped_lines_are_reported() -> None:
    write_lines([make_line()])
    (path,) = Path("history").rglob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"schema": 1, "da')
    assert "line 2 skipped" in run("history").out


def refused(*arguments: str) -> Result:
    result = run("history", *arguments)
    assert result.exit_code == 2
    return result


def test_histories_that_cannot_be_listed_are_refused() -> None:
    for model in ((), ("models/Other.onnx",)):
        assert "--modelperf-history" in refused(*model).err
    write_lines([make_line()])
    other = refused("models/Other.onnx").err
    assert "no history of models/Other.onnx in" in other
    assert other.endswith("There are: models/encoder.onnx.\n")
    assert "--since takes a day" in refused("--since", "yesterday").err
    assert "--fail-on-drift takes a share" in refused("--fail-on-drift", "much").err


@pytest.mark.parametrize(
    ("levels", "bars"), [([0.0], "▅"), ([0.0, 0.0], "▅▅"), ([0.0, 0.1], "▁█"), ([0.0, 0.002], "▄▅")]
)
def test_a_sparkline_shows_small_changes_as_small(levels: list[float], bars: str) -> None:
    assert sparkline(levels) == bars
