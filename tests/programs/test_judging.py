"""A program is judged by what changed; equal sessions drop out however much they vary."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.comparing.changes import StageChange, TimeChange
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import LOAD, Tolerances
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.programs.causes import grown_functions
from pytest_modelperf.programs.judging import (
    REST,
    Basis,
    basis_of,
    is_decided,
    judge_program,
    judge_with_models,
    memory_metric,
)
from pytest_modelperf.programs.messages import CallProfile, FunctionTime, Reached, Spent, Turn
from pytest_modelperf.programs.rounds import OpenPair, Pace, ProgramRound, take_rounds
from pytest_modelperf.programs.work import WorkComparison, compare_work

_MS = 1_000_000
_SESSION = SessionWork(
    model="m.onnx",
    sha256="a" * 64,
    options={},
    inferences=(InferenceWork(inputs=("x: 1x8 float32",), count=1),),
)
_REACHED = Reached(source=None, kind="function", start_ns=_MS)
_GATE = Gate(tolerances=Tolerances(shares=((50.0, 0.05),)), rounds=12, judges_starts=False)


def _same() -> WorkComparison:
    work = CallWork(sessions=(_SESSION,))
    return compare_work(work, work)


def _turns(
    draw: random.Random, session_ms: float, rest_ms: float, cpu_share: float = 1.0
) -> tuple[Turn, ...]:
    found = []
    for _ in range(20):
        session = round(session_ms * draw.gauss(1.0, 0.01) * _MS)
        rest = round(rest_ms * draw.gauss(1.0, 0.01) * _MS)
        found.append(
            Turn(
                wall_ns=session + rest,
                rest_ns=rest,
                cpu_ns=round(rest * cpu_share),
                waited_ns=0,
                rest_waited_ns=0,
                sessions={"m.onnx": Spent(calls=1, ns=session)},
            )
        )
    return tuple(found)


def _rounds(rest_now_ms: float, count: int = 8, cpu_share: float = 1.0) -> list[ProgramRound]:
    """Rounds in which the same session differs by up to 20 % from process to process."""
    draw = random.Random(1)
    return [
        ProgramRound(
            _turns(draw, 15 * draw.uniform(0.9, 1.1), 2.0, cpu_share),
            _turns(draw, 15 * draw.uniform(0.9, 1.1), rest_now_ms, cpu_share),
            (_REACHED, _REACHED),
        )
        for _ in range(count)
    ]


def test_the_code_that_grew_is_found_although_equal_sessions_vary_more() -> None:
    judged = judge_program(_rounds(4.0), _same(), _GATE)
    assert judged.rounds.p50.verdict is Verdict.REGRESSED
    assert 1.08 < (judged.rounds.p50.ratio or 0) < 1.16
    rest = next(stage for stage in judged.stages if stage.kind == "rest")
    session = next(stage for stage in judged.stages if stage.kind == "session")
    assert (rest.name, rest.is_judged, session.is_judged) == (REST, True, False)
    assert rest.time is not None
    assert rest.time.explains(0.9)


def test_an_unchanged_program_passes() -> None:
    rounds = _rounds(2.0)
    assert judge_program(rounds, _same(), _GATE).rounds.p50.verdict is Verdict.PASSED
    assert is_decided(rounds[:6], _same(), _GATE)


def test_a_session_with_other_work_is_judged_too() -> None:
    other = replace(_SESSION, options={"threads": "8"})
    work = compare_work(CallWork(sessions=(_SESSION,)), CallWork(sessions=(other,)))
    judged = judge_program(_rounds(2.0), work, _GATE)
    assert all(stage.is_judged for stage in judged.stages)
    # Its processes differ by more than is allowed, so these rounds do not decide it.
    assert judged.rounds.p50.verdict is Verdict.INCONCLUSIVE


def _with_peaks(grown_bytes: int, count: int = 8) -> list[ProgramRound]:
    draw = random.Random(2)
    peaks = [200_000_000 + draw.randrange(1_000_000) for _ in range(count)]
    return [
        replace(made, peaks_bytes=(peak, peak + grown_bytes))
        for made, peak in zip(_rounds(2.0, count), peaks, strict=True)
    ]


def _with_other_model() -> WorkComparison:
    other = replace(_SESSION, sha256="b" * 64)
    return compare_work(CallWork(sessions=(_SESSION,)), CallWork(sessions=(other,)))


@pytest.mark.parametrize(
    ("model_ms", "verdict"),
    [
        ((1.0, 1.2), Verdict.REGRESSED),
        ((-0.1, 0.3), Verdict.PASSED),
        ((-2.0, -1.5), Verdict.IMPROVED),
        ((0.5, 1.2), Verdict.INCONCLUSIVE),
        # In the program, the session does not take three times as long.
        ((30.0, 31.0), Verdict.INCONCLUSIVE),
    ],
)
def test_a_duet_of_a_changed_model_decides_if_its_session_varies_more(
    model_ms: tuple[float, float], verdict: Verdict
) -> None:
    work = _with_other_model()
    judged = judge_program(_rounds(2.0), work, _GATE)
    assert judged.rounds.p50.verdict is Verdict.INCONCLUSIVE
    low, high = (each * _MS for each in model_ms)
    change = TimeChange(ns=(low + high) / 2, low_ns=low, high_ns=high)
    again = judge_with_models(judged, work, {"m.onnx": change}, _GATE)
    assert again.rounds.p50.verdict is verdict
    if verdict is not Verdict.INCONCLUSIVE:
        (session,) = (each for each in again.stages if each.kind == "session")
        assert session.time is not None
        assert session.time.interval_ms == pytest.approx(model_ms)


def test_an_open_program_stays_open_if_no_model_changed() -> None:
    judged = judge_program(_rounds(2.0), _with_other_model(), _GATE)
    assert judged.rounds.p50.is_open
    assert judge_with_models(judged, _with_other_model(), {}, _GATE) is judged


def test_memory_that_grew_fails_and_what_an_allocator_takes_passes() -> None:
    less, more = (memory_metric(_with_peaks(grown), _GATE) for grown in (3_000_000, 80_000_000))
    assert less is not None
    assert more is not None
    assert less.verdict is Verdict.PASSED
    assert (more.verdict, more.awaited) == (Verdict.REGRESSED, False)
    assert memory_metric(_rounds(2.0), _GATE) is None


def test_a_start_that_takes_longer_fails() -> None:
    later = replace(_REACHED, start_ns=2 * _MS)
    rounds = [replace(made, reached=(_REACHED, later)) for made in _rounds(2.0)]
    gate = Gate(tolerances=_GATE.tolerances, rounds=12, starts=(LOAD,))
    judged = judge_program(rounds, _same(), gate).rounds
    found = {metric.name: metric.verdict for metric in judged.metrics}
    assert found["load_ms"] is Verdict.REGRESSED
    assert found["latency_p50"] is Verdict.PASSED
    assert "first_inference_ms" not in found


def test_code_that_waits_is_judged_by_wall_time() -> None:
    assert basis_of(_rounds(2.0)) is Basis.PROCESSOR
    assert basis_of(_rounds(2.0, cpu_share=0.4)) is Basis.WALL


class _FakeClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class _FakeStation:
    def __init__(self, clock: _FakeClock, call_ns: int) -> None:
        self._clock = clock
        self._call_ns = call_ns
        self.calls = 0

    def call(self, count: int, max_ns: int) -> tuple[Turn, ...]:
        assert max_ns > 0
        self.calls += count
        self._clock.now_ns += count * self._call_ns
        return (Turn(wall_ns=self._call_ns, rest_ns=self._call_ns, cpu_ns=self._call_ns),) * count

    peak_bytes = 1 << 20

    def profile(self, calls: int) -> CallProfile:
        raise AssertionError(f"{calls} calls were profiled to time some")


def _take(
    call_ns: int, pace: Pace, start_ns: int = 1000 * _MS
) -> tuple[Sequence[ProgramRound], int]:
    clock = _FakeClock()

    @contextmanager
    def open_pair() -> Iterator[OpenPair]:
        clock.now_ns += start_ns
        sides = [_FakeStation(clock, call_ns) for _ in range(2)]
        yield OpenPair(sides[0], sides[1], (_REACHED, _REACHED))

    return take_rounds(open_pair, lambda *_: False, pace, clock), clock.now_ns


def test_rounds_end_with_their_time_or_their_number() -> None:
    rounds, _ = _take(10 * _MS, Pace(seconds=1000.0))
    assert len(rounds) == 12
    rounds, taken_ns = _take(10 * _MS, Pace(seconds=10.0))
    assert 2 <= len(rounds) < 12
    assert taken_ns <= 10_000 * _MS


def test_a_slow_program_gets_the_time_of_some_rounds() -> None:
    slow_ns = 2000 * _MS
    few, _ = _take(slow_ns, Pace(seconds=30.0))
    more, _ = _take(slow_ns, Pace(seconds=30.0, stretch_seconds=180.0))
    assert len(few) < len(more)
    assert all(len(made.before) == len(made.after) == 2 for made in more)


def _function(place: str, calls: int, own_ms: float) -> FunctionTime:
    return FunctionTime(place=place, file=None, calls=calls, own_ns=round(own_ms * _MS))


def test_an_inference_does_not_count_as_a_function_of_the_program() -> None:
    place = "built-in method onnxruntime.capi.onnxruntime_pybind11_state.run"
    profiles = [[CallProfile(functions=(_function(place, 1, ms),))] for ms in (1.0, 4.0)]
    assert not grown_functions(*profiles)


def test_a_stage_leaves_waits_for_a_processor_out_as_the_whole_does() -> None:
    def waiting(turn: Turn) -> Turn:
        spent = Spent(calls=1, ns=turn.sessions["m.onnx"].ns + 9 * _MS)
        return replace(
            turn, wall_ns=turn.wall_ns + 9 * _MS, waited_ns=9 * _MS, sessions={"m.onnx": spent}
        )

    rounds = [
        replace(
            made, before=tuple(map(waiting, made.before)), after=tuple(map(waiting, made.after))
        )
        for made in _rounds(2.0)
    ]
    calm, held_up = (judge_program(each, _same(), _GATE) for each in (_rounds(2.0), rounds))
    assert [stage.before for stage in held_up.stages] == [stage.before for stage in calm.stages]
    assert held_up.rounds.p50.before == calm.rounds.p50.before


def test_the_functions_whose_own_time_grew_are_named_with_their_calls() -> None:
    before = CallProfile(functions=(_function("reader.py:prepare", 1, 0.6),))
    after = CallProfile(
        functions=(
            _function("reader.py:prepare", 1, 9.8),
            _function("encoder.py:iterencode", 3, 2.0),
            _function("reader.py:read", 1, 0.01),
        )
    )
    found = [each.describe() for each in grown_functions([before], [after])]
    assert found == [
        "reader.py:prepare: 1 call, 0.600 -> 9.800 ms",
        "encoder.py:iterencode: 0 -> 3 calls, 0.000 -> 2.000 ms",
    ]


@pytest.mark.parametrize(
    "place",
    [
        "method 'acquire' of '_thread.lock' objects",
        "method 'acquire' of '_multiprocessing.SemLock' objects",
        "method 'poll' of 'select.epoll' objects",
        "built-in method select.select",
        "built-in method posix.waitpid",
    ],
)
def test_a_wait_that_grew_is_not_the_work_of_the_call(place: str) -> None:
    before, after = (CallProfile(functions=(_function(place, 2, ms),)) for ms in (1.0, 3.0))
    (wait,) = grown_functions([before], [after])
    assert wait.describe() == (
        f"{place}: 2 calls, 1.000 -> 3.000 ms, waiting for a thread or process that is not profiled"
    )


def test_a_function_that_is_not_slower_in_each_profile_is_not_named() -> None:
    before, after = (
        [
            CallProfile(functions=(_function("reader.py:a", 1, a), _function("reader.py:b", 1, b)))
            for a, b in times
        ]
        for times in ([(1.0, 1.0), (2.0, 1.2), (1.0, 1.1)], [(1.9, 1.3), (5.0, 1.5), (5.0, 1.4)])
    )
    assert [each.place for each in grown_functions(before, after)] == ["reader.py:b"]


def test_a_small_part_of_the_growth_of_a_call_names_no_function() -> None:
    before, after = (
        [CallProfile(functions=(_function("reader.py:read", 1, ms),))] for ms in (1.0, 2.0)
    )
    assert grown_functions(before, after, call_ns=9.0 * _MS)
    assert not grown_functions(before, after, call_ns=11.0 * _MS)


@pytest.mark.parametrize(("rest_ns", "is_first"), [(9.0, True), (5.0, False), (-9.0, False)])
def test_functions_come_first_if_the_rest_grew_by_more_than_a_session(
    rest_ns: float, *, is_first: bool
) -> None:
    judged = judge_program(_rounds(2.0), _same(), _GATE)
    session, rest = TimeChange(ns=7.0), TimeChange(ns=rest_ns)
    stages = (
        StageChange(
            name="m", kind="session", before=None, after=None, time=session, is_judged=True
        ),
        StageChange(name="rest", kind="rest", before=None, after=None, time=rest, is_judged=True),
    )
    assert replace(judged, stages=stages).grew_outside_sessions is is_first


@pytest.mark.parametrize(
    ("rest", "session", "is_profiled"),
    [
        (TimeChange(ns=5.0, low_ns=4.0, high_ns=6.0, share=0.9), 0.1, True),
        (TimeChange(ns=5.0, low_ns=-1.0, high_ns=6.0, share=0.9), 0.05, True),
        (TimeChange(ns=5.0, low_ns=-1.0, high_ns=6.0, share=0.1), 0.9, False),
    ],
    ids=["the rest explains it", "no part explains it", "a session explains it"],
)
def test_functions_are_looked_for_unless_a_session_alone_explains_the_difference(
    rest: TimeChange, session: float, *, is_profiled: bool
) -> None:
    judged = judge_program(_rounds(2.0), _same(), _GATE)
    other = TimeChange(ns=9.0, low_ns=8.0, high_ns=10.0, share=session)
    stages = (
        StageChange(name="rest", kind="rest", before=None, after=None, time=rest, is_judged=True),
        StageChange(name="m", kind="session", before=None, after=None, time=other, is_judged=True),
    )
    assert replace(judged, stages=stages).may_name_functions is is_profiled
