"""A search among commits of a program whose work and times are known: what it finds and asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.bisect.records import (
    BISECT,
    Answer,
    Bisect,
    BisectFigure,
    RangeKind,
    Version,
    VersionRange,
)
from pytest_modelperf.bisect.report import bisect_report
from pytest_modelperf.bisect.request import ProgramBisect, bisect_program
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.programs.work import compare_work, work_metrics
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report

TEST = "test_read.py::test_read"
GATE = Gate(tolerances=Tolerances(shares=((50.0, 0.05),)), judges_starts=False)


class Commits:
    """Commits by the inferences of a call and its time in ms, and the comparisons asked for."""

    def __init__(
        self, inferences: Sequence[int], times: Sequence[float], broken: Mapping[int, str] | None
    ) -> None:
        self.inferences, self.times = inferences, times
        self.broken = broken or {}
        self.asked: list[tuple[int, int, Pace]] = []

    def compare(self, before: str, after: str, check: ProgramCheck) -> CheckedProgram:
        old, new = int(before, 16), int(after, 16)
        self.asked.append((old, new, check.pace))
        if old in self.broken:
            new_here = CaseComparison(check.case, (), (), (self.broken[old],), outcome=Verdict.NEW)
            return CheckedProgram(comparison=new_here)
        if new in self.broken:
            failed = CaseComparison(check.case, (), (), failure=self.broken[new])
            return CheckedProgram(comparison=failed)
        work = compare_work(_work(self.inferences[old]), _work(self.inferences[new]))
        metrics = work_metrics(work, check.gate.tolerances)
        if all(metric.verdict is not Verdict.REGRESSED for metric in metrics):
            ratio, allowed = self.times[new] / self.times[old], check.gate.tolerance
            verdict = Verdict.REGRESSED if ratio > 1 + allowed else Verdict.PASSED
            metrics += (
                Metric("latency_p50", self.times[old], self.times[new], verdict, allowed=allowed),
            )
        case = CaseComparison(check.case, metrics, (), reasons=work.differences)
        return CheckedProgram(comparison=case)


def _work(inferences: int) -> CallWork:
    ran = InferenceWork(inputs=("x: 1x3 float32",), count=inferences, macs=30)
    session = SessionWork(model="rec.onnx", sha256="0" * 64, options={}, made=0, inferences=(ran,))
    return CallWork(sessions=(session,))


def search(
    inferences: Sequence[int],
    times: Sequence[float],
    *,
    broken: Mapping[int, str] | None = None,
    finds_all: bool = False,
) -> tuple[Bisect, Commits]:
    commits = Commits(inferences, times, broken)
    place = StationPlace(
        side="after", tree="t", worktree="t", test=TEST, python="p", options={}, sys_path=(),
        scratch="s",
    )  # fmt: skip
    check = ProgramCheck(
        test=TEST, case=Case(1, 1, program="test_read"), gate=GATE, pace=Pace(seconds=30.0),
        place=place, baselines=Path("baselines"), setup=Setup(), machine="m", today="2026-01-01",
        extensions=Extensions(),
    )  # fmt: skip
    versions = tuple(
        Version(f"{number:040x}", f"c{number}", f"Change {number}")
        for number in range(len(inferences))
    )
    found = VersionRange(RangeKind.COMMITS, versions)
    asked = ProgramBisect(test=TEST, check=check, range=found, finds_all=finds_all)
    return bisect_program(asked, commits.compare, lambda: 0.0), commits


def shown(bisect: Bisect) -> str:
    return render_report(bisect_report(bisect, COMMAND_WORDING), TextStyle(None))


def test_more_work_is_found_without_more_than_one_round_of_each_step() -> None:
    found, commits = search([2] * 5 + [3] * 4, [1.0] * 9)
    (regression,) = found.search.regressions
    assert (regression.last_good.label, regression.first_bad.label) == ("c4", "c5")
    assert found.judges is BisectFigure.WORK
    assert {pace.max_rounds for *_, pace in commits.asked} == {1}
    assert shown(found).splitlines()[0].endswith(": more work since the commit c5")
    assert shown(found).splitlines()[1:10] == snapshot(
        [
            "commit c5: Change 5",
            "c5 against c4: 1 inference of rec.onnx more (2 → 3)",
            "",
            "step  commit  answer  against  work               limit  time  subject",
            "───────────────────────────────────────────────────────────────────────",
            "   1  c8      bad     c0       inferences 2 → 3  +0.0 %   0 s  Change 8",
            "   2  c4      good    c0       inferences 2 → 2  +0.0 %   0 s  Change 4",
            "   3  c6      bad     c0       inferences 2 → 3  +0.0 %   0 s  Change 6",
            "   4  c5      bad     c0       inferences 2 → 3  +0.0 %   0 s  Change 5",
        ]
    )


def test_times_decide_if_the_bad_end_does_no_more_work() -> None:
    found, commits = search([2] * 9, [1.0] * 3 + [1.3] * 6)
    (regression,) = found.search.regressions
    assert (regression.last_good.label, regression.first_bad.label) == ("c2", "c3")
    assert found.judges is BisectFigure.LATENCY
    assert [pace.max_rounds for *_, pace in commits.asked].count(1) == 1
    assert "so its time was judged" in shown(found)


def test_work_that_grew_for_a_while_is_not_taken_for_a_longer_time() -> None:
    """The commits 3 and 4 do more work, which 5 takes back; the time grows at 7."""
    found, _ = search([2, 2, 2, 9, 9, 2, 2, 2, 2], [1.0] * 7 + [1.3] * 2)
    (regression,) = found.search.regressions
    assert regression.first_bad.label == "c7"


def test_less_work_and_the_same_time_are_not_worse() -> None:
    found, _ = search([3, 3, 2], [1.0, 1.0, 1.0])
    assert found.search.regressions == ()
    assert found.search.verdict is Verdict.PASSED


def test_a_commit_whose_test_fails_is_stepped_around_and_named_in_one_line() -> None:
    text = "test_read.py::test_read failed at the commit c4:\n  line 3\nE   ValueError: no"
    found, _ = search([2] * 5 + [3] * 4, [1.0] * 9, broken={4: text})
    (regression,) = found.search.regressions
    assert [each.label for each in regression.between] == ["c4"]
    (failed,) = [step for step in found.search.steps if step.answer is Answer.FAILED]
    assert failed.reason == f"{TEST} failed at the commit c4: ValueError: no"


def test_ends_without_the_test_are_errors() -> None:
    reason = "test_read.py::test_read does not exist in the older version"
    with pytest.raises(UsageError, match=r"does not exist .* Give --good a later commit than c0"):
        search([2, 3], [1.0, 1.0], broken={0: reason})
    with pytest.raises(MeasureError, match="failed at the bad end"):
        search([2, 3], [1.0, 1.0], broken={1: "failed at the bad end"})


def test_every_growth_of_the_work_is_found_if_all_are_looked_for() -> None:
    found, _ = search([1, 1, 2, 2, 2, 3, 3], [1.0] * 7, finds_all=True)
    assert [each.first_bad.label for each in found.search.regressions] == ["c2", "c5"]


@pytest.mark.parametrize("inferences", [[2, 2, 3], [0, 0, 3]], ids=["more", "from none"])
def test_the_document_is_its_schema_and_each_face_shows_the_work(inferences: list[int]) -> None:
    found, _ = search(inferences, [1.0] * 3)
    document = json.loads(BISECT.dump(found))
    assert msgspec.convert(document, BISECT.json_type)
    assert document["judges"] == "work"
    assert [step["ratio"] for step in document["steps"]] == [None] * 3
    assert [step["work"] is None for step in document["steps"]] == [False, True, False]
    report = bisect_report(found, COMMAND_WORDING)
    assert render_csv(report).count("\n") == 4
    assert "more work since" in render_page(report)
