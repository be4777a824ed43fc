"""The stages of a program: what was judged is marked, and equal sessions are named as such."""

from __future__ import annotations

from pytest_modelperf.comparing.changes import StageChange, StageTime, TimeChange
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.tables.times import stage_table
from pytest_modelperf.profiler.records import Case

_MS = 1_000_000.0


def _time(ms: float) -> StageTime:
    return StageTime(calls=1, ns=ms * _MS)


def test_only_a_session_that_was_not_judged_did_the_same_work() -> None:
    longer = TimeChange(ns=2 * _MS, low_ns=_MS, high_ns=3 * _MS, share=1.0)
    same = StageChange(name="m.onnx", kind="session", before=_time(5), after=_time(5))
    stages = (
        same,
        StageChange(name="new.onnx", kind="session", before=None, after=_time(1), is_judged=True),
        StageChange(
            name="rest",
            kind="rest",
            before=_time(1),
            after=_time(3),
            time=longer,
            is_judged=True,
        ),
        StageChange(name="decode", kind="label", before=_time(1), after=_time(3)),
        StageChange(name="1", kind="input", before=_time(6), after=_time(9)),
    )
    table = stage_table(CaseComparison(Case(1, 1), (), (), stages=stages))
    marks = {row[0]: row[-1] for row in table.rows}
    assert marks == {
        "m.onnx": "same work",
        "new.onnx": "< new",
        "rest": "<",
        "label decode": "",
        "input 1": "",
    }
