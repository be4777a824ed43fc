"""The spans of a small program: two threads, inferences, and operators inside of them."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.tracing.records import Category, Event, Span, ThreadName

MS = 1_000_000
# Each operator with its type, its start in an inference and its duration, in milliseconds.
_OPERATORS = (("stem", "Conv", 1, 5), ("act", "Relu", 6, 1), ("head", "Gemm", 8, 1))


def recorded_spans(inferences: int = 3) -> Iterator[Event]:
    """Yield inferences of 10 ms on one thread, and a label of 5 ms on another one."""
    yield ThreadName(name="python", process=1)
    yield ThreadName(name="MainThread", process=1, thread=1)
    yield ThreadName(name="loader", process=1, thread=2)
    number = 0
    for turn in range(inferences):
        number += 1
        start = 20 * turn
        around = number
        yield _span("inference", Category.INFERENCE, start, 10, number)
        for name, op_type, at, took in _OPERATORS:
            number += 1
            yield _span(name, Category.OPERATOR, start + at, took, number, around, op_type)
    yield _span("read data", Category.LABEL, 2, 5, number + 1, thread=2)


def _span(  # noqa: PLR0913, PLR0917  # the parts of a span, in order
    name: str,
    category: Category,
    start_ms: int,
    duration_ms: int,
    number: int,
    parent: int | None = None,
    op_type: str | None = None,
    thread: int = 1,
) -> Span:
    return Span(
        name=name,
        category=category,
        start_ns=start_ms * MS,
        duration_ns=duration_ms * MS,
        process=1,
        thread=thread,
        id=number,
        parent=parent,
        arguments={"session": "small.onnx", "op_type": op_type, "core": number},
    )
