"""Converts events to the records of a spool, and back."""

from __future__ import annotations

from pytest_modelperf.tracing.records import Category, Counter, Span
from pytest_modelperf.tracing.spool import Record

# Positions in a record, after the three that sort it.
KIND, THREAD, PARENT, NAME, ARGUMENTS, SELF, INDEX, POOL, SESSION, SHAPES = range(3, 13)

INFERENCE = Category.INFERENCE.value
# An inference during a pause: not shown, but its session's profile contains it.
HIDDEN = "hidden"
_COUNTER = "counter"


def write_span(span: Span) -> Record:
    return (
        span.start_ns,
        -span.end_ns,
        span.id,
        span.category.value,
        span.thread,
        span.parent,
        span.name,
        span.arguments,
        span.self_ns,
        span.operator_index,
        span.pool,
    )


def write_counter(counter: Counter, id_: int) -> Record:
    return counter.at_ns, -counter.at_ns, id_, _COUNTER, 0, None, counter.name, counter.values


def read_event(record: Record, process: int) -> Span | Counter | None:
    """The event; None for a hidden inference."""
    start_ns, minus_end_ns, id_, kind, thread, parent, name, arguments, *rest = record
    if kind == HIDDEN:
        return None
    if kind == _COUNTER:
        return Counter(name=name, at_ns=start_ns, values=arguments, process=process)
    return Span(
        name=name,
        category=_CATEGORIES[kind],
        start_ns=start_ns,
        duration_ns=-minus_end_ns - start_ns,
        process=process,
        thread=thread,
        id=id_,
        parent=parent,
        self_ns=rest[0],
        operator_index=rest[1],
        arguments=arguments,
        pool=rest[2],
    )


_CATEGORIES = {category.value: category for category in Category}
