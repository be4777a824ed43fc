"""The program around a measurement: what it stores, how it ends, and how a later run goes on."""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import measuring
import pytest
import results
from expected import Expectation, expect_most, expect_none, expect_share
from kept import keep_row, left_of, read_records, read_rows
from measuring import Program
from results import Result, Rows


@dataclass(frozen=True)
class Took:
    """A record of the measurement."""

    name: str
    seconds: tuple[float, ...]


def measure(options: argparse.Namespace) -> Rows:
    keep_row(options.folder, "runs", Took("a", (1.0, options.limit)))
    return {"runs": read_rows(options.folder, "runs")}


def tables(result: Result) -> dict[str, str]:
    return {"a": f"{len(result.rows['runs'])} runs", f"a{results.SHORT}": "not printed"}


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(expect_most(run.name, max(run.seconds), 5.0) for run in result.read("runs", Took))


def program(*peers: str) -> Program:
    made = Program("overhead", "One line.\n\nMore.", tables, expectations, peers=peers)
    made.number("--limit", 2.0, "of a run")
    made.flag("--no-peers", "ours alone")
    return made


def test_a_run_is_stored_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "overhead.json"
    assert program().run(measure, ["--json", str(path), "--limit", "3"]) == 0
    stored = results.load(path)
    assert stored.command == "python benchmarks/overhead.py --limit 3"
    assert stored.read("runs", Took) == [Took("a", (1.0, 3.0))]
    printed = capsys.readouterr().out
    assert "## a\n\n1 runs\n" in printed
    assert "not printed" not in printed
    assert "| a | at most 5 s | 3.0 s | met |" in printed


def test_a_benchmark_ends_with_1_if_a_deciding_expectation_was_missed() -> None:
    own = program()
    assert own.run(measure, ["--limit", "6"]) == 1
    own.decides = lambda each: each.what != "a"
    assert own.run(measure, ["--limit", "6"]) == 0


def test_a_later_run_goes_on_in_its_folder_and_counts_the_time_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=itertools.count().__next__, perf_counter=time.perf_counter)
    monkeypatch.setattr(measuring, "time", clock)
    given = ["--folder", str(tmp_path / "kept"), "--json", str(tmp_path / "overhead.json")]
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "seconds").write_text("1000")
    assert program().run(measure, given) == 0
    assert program().run(measure, given) == 0
    stored = results.load(tmp_path / "overhead.json")
    assert len(stored.rows["runs"]) == 2
    # Of the first run only its measurement counts, which lasts from one tick to the next.
    assert stored.seconds == 1000 + 1 + 3


def test_a_peer_that_is_not_installed_is_named_unless_ours_runs_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        program("not-there").run(measure, [])
    assert "not-there is not installed" in capsys.readouterr().err
    assert program("not-there").run(measure, ["--no-peers"]) == 0


def test_numbers_have_commas_between_them() -> None:
    own = program()
    own.numbers("--cores", (1, 2), "core counts")
    assert own.parser.parse_args(["--cores", "1,4"]).cores == [1, 4]
    assert own.parser.parse_args([]).cores == (1, 2)


def test_each_planned_setting_is_left_the_number_of_times_it_was_not_done() -> None:
    assert left_of(["a", "b", "a", "c", "a"], ["a", "c", "d"]) == ["b", "a", "a"]


def test_expectations_without_cases_are_neither_met_nor_missed() -> None:
    assert (expect_share("a", []).is_met, expect_none("a", []).is_met) == (None, None)
    share = expect_share("a", [True, True, False], 0.6)
    assert (share.expected, share.found, share.is_met) == ("at least 60 %", "2 of 3", True)
    assert expect_share("a", [True, False]).outcome == "missed"
    assert expect_none("a", [False, True]).found == "1 of 2"


def test_a_row_is_read_as_the_record_that_was_kept(tmp_path: Path) -> None:
    keep_row(tmp_path, "runs", Took("é", (0.5,)))
    assert read_records(read_rows(tmp_path, "runs"), Took) == [Took("é", (0.5,))]
    assert read_rows(tmp_path, "others") == []
