"""The results of a soak from its runs, and its findings about a run that did not clean up."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import soak
from commands import Ran
from expected import Expectation
from filelock import FileLock
from loads import BUSY, NEIGHBOURS, loaded
from results import Result, from_json
from soak_runs import (
    NOISES,
    STORED,
    WAYS,
    Compared,
    Figure,
    Held,
    Run,
    expectations,
    find_growth,
    read_case,
    tables,
)

from tests.support.processes import children

MIB = 1 << 20
HELD = Held("first", 100 * MIB, threads=3, files=10)
CASE = {
    "id": "b1-c1",
    "verdict": "passed",
    "failure": None,
    "seconds": 1.234,
    "rounds": 9,
    "notes": [],
    "metrics": [
        {
            "name": "latency_p50",
            "gated": True,
            "verdict": "passed",
            "ratio": 1.00104,
            "interval": [0.99, 1.012],
        },
        {
            "name": "latency_p99",
            "gated": False,
            "verdict": "inconclusive",
            "ratio": None,
            "interval": None,
        },
        {"name": "macs", "gated": True, "verdict": "passed", "ratio": 1.0, "interval": None},
    ],
}


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is read")


def compared(verdict: str | None = "passed", way: str = "twin", **changes: Any) -> Compared:  # noqa: ANN401  # any field
    figure = Figure("latency_p50", str(verdict), 1.0, 0.99, 1.01)
    return replace(Compared("tiny b1-c1", way, verdict, 1.0, 9, (figure,)), **changes)


def run_of(
    *cases: Compared, way: str = "twin", left: tuple[str, ...] = (), held: Held = HELD
) -> Run:
    return Run(0, "none", way, 2.0, cases or (compared(way=way),), left, held)


def result_of(*runs: Run) -> Result:
    moment = {"load": 1.0, "loop_ms": 2.0}
    empty: dict[str, Any] = {"machine": {}, "versions": {}, "is_complete": True, "seconds": 1.0}
    heading = {"benchmark": "soak", "command": "", "date": "2026-11-22T03:00:00+00:00"}
    rows = {"runs": [asdict(run) for run in runs]}
    return from_json(empty | heading | {"before": moment, "after": moment, "rows": rows})


def expected(*runs: Run) -> dict[str, Expectation]:
    return {each.what: each for each in expectations(result_of(*runs))}


def test_every_noise_meets_every_way_before_any_does_again() -> None:
    count = len(NOISES) * len(WAYS)
    first, second = (list(islice(soak.plan_runs(0), k, k + count)) for k in (0, count))
    assert len(set(first)) == len(set(second)) == count
    assert first != second
    assert list(islice(soak.plan_runs(0), count)) == first
    assert set(NOISES) - {"none"} < set(NEIGHBOURS)


def test_the_judged_latencies_of_a_case_are_kept() -> None:
    figure = Figure("latency_p50", "passed", 1.001, 0.99, 1.012)
    found = read_case("tiny.onnx", CASE, "twin")
    assert found == Compared("tiny b1-c1", "twin", "passed", 1.23, 9, (figure,))


def test_a_case_against_stored_samples_does_not_count_as_a_duet() -> None:
    case = CASE | {"notes": ["not run as a duet: the twin was not shown to run as fast"]}
    assert read_case("tiny.onnx", case, "twin").way == STORED


@pytest.mark.parametrize("verdict", ["unchanged", "new", None])
def test_a_case_that_nothing_was_judged_of_has_failed(verdict: str | None) -> None:
    case = CASE | {"verdict": verdict, "metrics": []}
    assert read_case("tiny.onnx", case, "twin").failure == f"nothing was judged, it is {verdict}"


@pytest.mark.parametrize("verdict", ["regressed", "improved"])
def test_one_run_in_a_hundred_may_raise_an_alarm(verdict: str) -> None:
    alarm, quiet = run_of(compared(verdict), compared(verdict)), run_of()
    what = f"runs with something called {verdict}"
    outcomes = [
        expected(*[alarm] * alarms, *[quiet] * (count - alarms))[what].outcome
        for alarms, count in ((0, 10), (1, 10), (2, 10), (2, 200), (3, 200))
    ]
    assert outcomes == ["met", "met", "missed", "met", "missed"]


def test_an_alarm_of_stored_samples_is_shown_and_breaks_no_promise() -> None:
    runs = [run_of(compared("regressed", way=STORED))] * 3
    assert expected(*runs)["runs with something called regressed"].found == "0"
    assert "| stored samples | 3 | 3 | 0 | 0 | 0 | 0 |" in tables(result_of(*runs))["soak by way"]


def test_failures_and_leftovers_are_missed_and_named() -> None:
    failed = run_of(compared(verdict=None, failure="it died", figures=()))
    found = expected(failed, run_of(left=("tmp/modelperf-x", "process python, S")))
    assert found["comparisons that failed"].found == "1"
    assert found["processes, files and locks left"].found == "tmp/modelperf-x, process python, S"
    assert {each.outcome for each in list(found.values())[2:]} == {"missed"}
    assert {each.outcome for each in expected(run_of()).values()} == {"met"}


def test_a_table_has_a_line_for_each_noise_and_one_for_all() -> None:
    open_p50 = compared(
        "inconclusive", figures=(Figure("latency_p50", "passed", 1.02, 1.01, 1.03),)
    )
    open_ones = (Figure(f"latency_p{k}", "inconclusive", *[None] * 3) for k in (50, 95))
    unknown = compared("inconclusive", figures=tuple(open_ones))
    runs = [run_of(compared()), replace(run_of(open_p50, unknown), noise="bursts")]
    assert tables(result_of(*runs))["soak by noise"].splitlines() == [
        (
            "| neighbours | comparisons | regressed | improved | passed | inconclusive | failed "
            "| p50 decided | intervals without 1 | median s | 90 % within s |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| none | 1 | 0 | 0 | 1 | 0 | 0 | 1 of 1 | 0 of 1 | 1.0 | 1.0 |",
        "| bursts | 2 | 0 | 0 | 0 | 2 | 0 | 1 of 2 | 1 of 1 | 1.0 | 1.0 |",
        "| all | 3 | 0 | 0 | 1 | 2 | 0 | 2 of 3 | 1 of 2 | 1.0 | 1.0 |",
    ]


def grown(*mib: float, last: Held = HELD) -> list[Run]:
    """Runs of one process, one comparison each, that held so much memory after each."""
    held = [replace(HELD, rss_bytes=round(each * MIB)) for each in mib]
    held[-1] = replace(last, rss_bytes=held[-1].rss_bytes)
    return [run_of(way="one process", held=each) for each in held]


def test_memory_of_the_warm_up_does_not_count_as_growth() -> None:
    growth = find_growth(grown(50, 90, 100, 100, 100, 100, 100, 100))
    assert growth is not None
    assert growth.bytes_a_hundred == pytest.approx(0, abs=1)
    assert growth.made == (1, 3, 8)
    assert growth.is_flat


def test_memory_threads_and_files_may_not_grow_with_the_comparisons() -> None:
    leaking = expected(
        *grown(*[100 + 0.1 * each for each in range(12)], last=Held("first", 0, 4, 12))
    )
    assert leaking["memory gained in 100 comparisons"].found == "+10.49 MB"
    assert leaking["threads and open files gained"].found == "+1 and +2"
    assert [each.outcome for each in list(leaking.values())[-2:]] == ["missed", "missed"]
    steady = expected(*grown(*[100] * 12))
    assert [each.outcome for each in list(steady.values())[-2:]] == ["met", "met"]


def test_growth_is_that_of_the_last_process_only() -> None:
    earlier = [run_of(way="one process", held=Held("earlier", MIB, 3, 10))] * 9
    assert find_growth([*earlier, *grown(100, 100)]) is None
    growth = find_growth([*earlier, *grown(*[100] * 8)])
    assert growth is not None
    assert growth.held[0].rss_bytes == 100 * MIB


@ON_LINUX
def test_cases_that_a_session_does_not_report_have_failed(tmp_path: Path) -> None:
    class CrashingSoak(soak.Soak):
        def pytest(self, *_: str) -> Ran:
            document = {"cases": [CASE | {"model": {"name": "tiny.onnx"}}]}
            return Ran(139, 1.0, "Segmentation fault", document)

    first, others = CrashingSoak(tmp_path, 2.0, "mark").compare_by_pytest("twin")
    assert (first.case, first.failure) == ("tiny b1-c1", None)
    assert (others.case, others.failure) == ("the others", "Segmentation fault")


@ON_LINUX
def test_files_and_locks_that_are_left_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests may have children in this process, such as the tracker of multiprocessing.
    monkeypatch.setattr(soak, "find_processes", lambda _: ())

    class LeavingSoak(soak.Soak):
        def compare_by_pytest(self, _: str) -> tuple[Compared, ...]:
            (self.temporary / "modelperf-twin").write_text("")
            held.acquire()
            return ()

    own = LeavingSoak(tmp_path, 2.0, "mark")
    held = FileLock(own.lock)
    own.temporary.mkdir()
    left = own.run(0, "none", "twin").left
    held.release()
    assert left == ("tmp/modelperf-twin", "measuring.lock, still held")
    assert [run.left for run in own.read()] == [left]


@ON_LINUX
def test_a_process_is_found_by_its_mark_and_gone_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    mark = f"test-{os.getpid()}"
    environment = os.environ | {soak._MARKER: mark}
    # As if this process were the parent of none: only the mark counts, and other tests may have
    # children in this process, which come, go, and change their state.
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with subprocess.Popen([sys.executable, "-c", line], stdin=-1, env=environment) as process:
        while len(found := soak.find_processes(mark)) < 2:
            assert process.poll() is None
        assert all(each.startswith("process ") for each in found)
        process.communicate(b"\n")
    assert soak.find_processes(mark) == ()


@ON_LINUX
def test_neighbours_go_when_the_run_is_over() -> None:
    # Other tests may have children in this process.
    own = children()
    with loaded(BUSY):
        started = children() - own
        assert len(soak.find_processes("another mark")) >= len(started) == 2
    assert not children() & started
