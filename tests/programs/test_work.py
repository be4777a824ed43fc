"""The work of both sides is compared exactly: what grew is worse, and each difference is named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.comparing.limits import WORK, Tolerances
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.programs.work import compare_work, with_macs, work_metrics

_SMALL = InferenceWork(inputs=("x: 1x3x48x552 float32",), count=1, macs=100)
_WIDE = InferenceWork(inputs=("x: 1x3x48x960 float32",), count=1, macs=174)
_REC = SessionWork(
    model="rec.onnx", sha256="a" * 64, options={"threads": "1"}, inferences=(_SMALL,)
)


def _work(*sessions: SessionWork) -> CallWork:
    return CallWork(sessions=sessions)


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (
            replace(_REC, inferences=(replace(_SMALL, count=4),)),
            "3 inferences of rec.onnx more (1 -> 4)",
        ),
        (
            replace(_REC, inferences=(_WIDE,)),
            (
                "input of rec.onnx: x: 1x3x48x552 float32 -> 1x3x48x960 float32"
                " (MACs 100 -> 174, +74.0 %)"
            ),
        ),
        (replace(_REC, options={"threads": "8"}), "rec.onnx: threads 1 -> 8"),
        (replace(_REC, made=1), "a call makes 1 session of rec.onnx, and made 0 before"),
        (replace(_REC, sha256="b" * 64), "rec.onnx is another model"),
    ],
)
def test_each_difference_of_a_session_is_one_sentence(now: SessionWork, difference: str) -> None:
    found = compare_work(_work(_REC), _work(now))
    assert found.differences == (difference,)
    assert found.changed == {"rec.onnx"}


def test_the_sentence_on_another_model_differs_from_that_on_other_work() -> None:
    longer = replace(_REC, sha256="b" * 64, inferences=(replace(_SMALL, count=4),))
    found = compare_work(_work(_REC), _work(longer))
    assert found.other_models == ("rec.onnx is another model (MACs 100 -> 400, +300.0 %)",)
    assert found.differences[-1:] == found.other_models
    assert len(found.differences) == 2
    assert compare_work(_work(_REC), _work(_REC)).other_models == ()


def test_equal_work_has_no_difference_and_nothing_to_judge() -> None:
    found = compare_work(_work(_REC), _work(_REC))
    assert (found.differences, found.changed) == ((), frozenset())
    assert all(m.verdict is Verdict.PASSED for m in work_metrics(found, Tolerances()))


def test_a_model_without_a_digest_is_never_known_to_be_the_same() -> None:
    unknown = replace(_REC, sha256=None)
    assert compare_work(_work(unknown), _work(unknown)).changed == {"rec.onnx"}


def test_a_count_beyond_the_tolerance_is_worse_and_a_smaller_one_decides_nothing() -> None:
    grown = compare_work(_work(_REC), _work(replace(_REC, inferences=(_WIDE,))))
    macs = {m.name: m for m in work_metrics(grown, Tolerances())}["macs"]
    assert (macs.verdict, macs.reason) == (Verdict.REGRESSED, grown.differences[0])
    allowed = Tolerances(figures=((WORK, 0.8),))
    assert all(m.verdict is not Verdict.REGRESSED for m in work_metrics(grown, allowed))
    shrunk = compare_work(_work(replace(_REC, inferences=(_WIDE,))), _work(_REC))
    assert not {m.name: m for m in work_metrics(shrunk, Tolerances())}["macs"].gated


def test_inferences_before_the_first_item_are_work_if_both_sides_know_them() -> None:
    streams = replace(_work(_REC), first_item_inferences=1)
    waits = replace(streams, first_item_inferences=12)
    found = compare_work(streams, waits)
    reason = "the first item comes after 12 inferences, and after 1 before"
    assert found.differences == (reason,)
    assert not found.changed
    (grown,) = (m for m in work_metrics(found, Tolerances()) if m.verdict is not Verdict.PASSED)
    assert (grown.name, grown.verdict) == ("first_item_inferences", Verdict.REGRESSED)
    assert grown.reason == reason
    for before, after in ((_work(_REC), waits), (streams, _work(_REC))):
        found = compare_work(before, after)
        assert not found.differences
        assert "first_item_inferences" not in {m.name for m in work_metrics(found, Tolerances())}


def test_a_session_that_one_side_lacks_is_named() -> None:
    gone = compare_work(_work(_REC), _work())
    assert gone.differences == ("a call no longer runs rec.onnx: 1 inference",)
    come = compare_work(_work(), _work(_REC))
    assert come.differences == ("a call now runs rec.onnx: 1 inference",)


def test_a_session_that_a_call_makes_is_named_by_what_the_call_does_with_it() -> None:
    made = replace(_REC, made=1)
    assert compare_work(_work(), _work(made)).differences == (
        "a call makes 1 session of rec.onnx, and made 0 before",
        "a call now runs rec.onnx: 1 inference",
    )
    idle = replace(made, inferences=())
    assert compare_work(_work(), _work(idle)).differences == (
        "a call makes 1 session of rec.onnx, and made 0 before",
    )


def test_sessions_of_one_name_are_paired_by_their_model_and_options() -> None:
    other = replace(_REC, model="rec.onnx (2)", options={"threads": "4"})
    assert compare_work(_work(_REC, other), _work(other, _REC)).differences == ()


def test_macs_that_are_known_are_not_counted_again() -> None:
    asked: list[tuple[str, object]] = []

    def count(sha256: str, inputs: object) -> int:
        asked.append((sha256, inputs))
        return 7

    unknown = replace(_REC, inferences=(replace(_SMALL, macs=None),))
    assert with_macs(_work(unknown), count, _work(_REC)).macs == 100
    assert asked == []
    assert with_macs(_work(unknown), count).macs == 7
    assert asked == [("a" * 64, _SMALL.inputs)]
