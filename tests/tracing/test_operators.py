"""The operators of a profile find the calls that they ran in, and are inside of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.tracing.operators import Calls, OperatorPlacer, Placed
from pytest_modelperf.tracing.records import Category, Counter, Event, Span

THREAD = 5


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was recorded."""

    start_ns: int
    end_ns: int
    failed: bool = False
    hidden: bool = False


def calls_of(calls: Sequence[Call]) -> Calls:
    made = Calls()
    for number, call in enumerate(calls):
        kind = "hidden" if call.hidden else "inference"
        arguments = {"error": "RuntimeError"} if call.failed else {}
        own = (100 + number, kind, THREAD, None, "", arguments, None, None, None, 0, number)
        made.add((call.start_ns, -call.end_ns, *own))
    return made


def inference(start_ns: int, end_ns: int, *parts: tuple[int, int]) -> Iterator[Event]:
    """An inference as the reader yields it: then its operators, each inside of the one before."""
    ids = itertools.count(start_ns * 10 + 1)
    parent = next(ids)
    yield span(Category.INFERENCE, start_ns, end_ns, parent, 1)
    for part in parts:
        own = next(ids)
        yield span(Category.OPERATOR, *part, own, parent)
        parent = own


def span(category: Category, start_ns: int, end_ns: int, own: int, parent: int) -> Span:
    return Span(
        name=category.value,
        category=category,
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        thread=THREAD,
        id=own,
        parent=parent,
    )


def place(
    calls: Sequence[Call], events: Iterator[Event], begun_ns: int = 0
) -> tuple[OperatorPlacer, list[Placed]]:
    placer = OperatorPlacer({THREAD: calls_of(calls)}, begun_ns, itertools.count(1000).__next__)
    return placer, list(placer.place(events))


def test_operators_are_moved_onto_the_clock_of_the_calls() -> None:
    placer, found = place(
        [Call(50_000, 90_000)], inference(1000, 39_000, (2000, 30_000), (3000, 4000)), 50_000
    )
    outer, inner = found[0].operators
    assert (outer.start_ns, outer.end_ns, outer.parent) == (52_000, 80_000, 100)
    assert (inner.start_ns, inner.end_ns, inner.parent) == (53_000, 54_000, outer.id)
    assert (placer.placed, placer.strays, placer.overhang_ns) == (1, 0, 0)


def test_a_call_that_failed_has_operators_if_it_failed_as_it_ran() -> None:
    calls = [Call(0, 500_000, failed=True), Call(600_000, 900_000)]
    _, found = place(calls, inference(610_000, 880_000, (620_000, 630_000)))
    assert [(each.shapes, each.operators[0].parent) for each in found] == [(1, 101)]
    _, found = place(calls, inference(10_000, 480_000, (20_000, 30_000)))
    assert [each.shapes for each in found] == [0]


def test_a_call_in_a_pause_takes_its_operators_along() -> None:
    calls = [Call(0, 500_000, hidden=True), Call(600_000, 900_000)]
    events = itertools.chain(inference(1, 2, (1, 2)), inference(610_000, 620_000, (1, 2)))
    _, found = place(calls, events)
    assert [each.shapes for each in found] == [1]


def test_events_outside_calls_and_inferences_are_left_out() -> None:
    placer, found = place([Call(600_000, 900_000)], inference(1000, 2000, (1000, 2000)))
    assert (found, placer.strays) == ([], 1)
    loose = iter([span(Category.OPERATOR, 5, 6, 77, 1), span(Category.SESSION, 0, 9, 1, 0)])
    events = itertools.chain(inference(10, 20, (12, 14)), loose)
    _, found = place([Call(0, 100)], events)
    assert [len(each.operators) for each in found] == [1]


def test_counters_stay_inside_too() -> None:
    counter = Counter(name="memory", at_ns=25_000, values={"bytes": 1})
    events = itertools.chain(inference(10_000, 20_000), [counter])
    _, found = place([Call(0, 21_000)], events)
    assert [each.at_ns for each in found[0].counters] == [21_000]


def test_an_operator_outside_its_parent_is_moved_in_and_reported() -> None:
    placer, found = place([Call(0, 10_000)], inference(0, 30_000, (0, 30_000)))
    (moved,) = found[0].operators
    assert (moved.start_ns, moved.end_ns) == (0, 10_000)
    assert placer.overhang_ns == 10_000
    assert not placer.is_sure


@given(
    drift=st.floats(-5e-4, 5e-4),
    lengths=st.lists(st.integers(50_000, 10_000_000), min_size=1, max_size=30),
)
def test_clocks_that_drift_apart_are_followed(drift: float, lengths: list[int]) -> None:
    """A clock that a network corrects drifts like this, by up to half a millisecond a second."""
    calls = []
    events: list[Event] = []
    now = 0
    for length in lengths:
        calls.append(Call(now, now + length))
        start, end = (round(ns * (1 + drift)) for ns in (now + 10_000, now + length - 10_000))
        events.extend(inference(start, end, (start, end)))
        now += length + 1000
    placer, found = place(calls, iter(events))
    assert [each.shapes for each in found] == list(range(len(calls)))
    for call, each in zip(calls, found, strict=True):
        (moved,) = each.operators
        assert call.start_ns <= moved.start_ns <= moved.end_ns <= call.end_ns
    assert placer.is_sure
