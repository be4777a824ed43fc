"""Reads the facts of a kernel from a profile: operator, provider, precision, shapes, bytes.

They are the same in each inference, so they are kept once for each kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct

from pytest_modelperf.text.units import format_shape
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.files.ort_profile_file import KernelTold, Told, whole
from pytest_modelperf.tracing.records import Argument

# ONNX Runtime's names of tensor types that have another name in numpy.
_TYPES = {"float": "float32", "double": "float64"}
# Types of indexes and conditions, not of the numbers that are computed.
_INDEX_TYPES = ("bool", "int32", "int64")
_SIZES = (
    ("parameter_size", "parameter_bytes"),
    ("activation_size", "activation_bytes"),
    ("output_size", "output_bytes"),
)
# Times that the calling thread spent on its thread pool.
_POOL_TIMES = (
    ("Distribution", "distribute_us"),
    ("DistributionEnqueue", "enqueue_us"),
    ("Run", "run_us"),
    ("Wait", "wait_us"),
    ("WaitRevoke", "revoke_us"),
)
# Facts of the kernel itself, not of one run of it.
_OF_KERNEL = attrgetter("op_name", "provider", "node_index", "input_type_shape",
                        "output_type_shape", "parameter_size", "activation_size",
                        "output_size")  # fmt: skip

MemoryTold: TypeAlias = tuple[Told, Told, Told]


class _Known(Struct, frozen=True):
    """The facts of a kernel as its event has them, and as arguments of a span."""

    told: Sequence[object]
    arguments: dict[str, Argument]


class KernelFacts:
    """The arguments of kernels, cached by name."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, name: str, said: KernelTold) -> Mapping[str, Argument]:
        told = _OF_KERNEL(said)
        known = self._known.get(name)
        if known is None or known.told != told:
            known = self._known[name] = _Known(told, dict(_arguments(said)))
        return known.arguments


def pool_told(said: KernelTold) -> Mapping[str, Argument] | None:
    """Return how the session's thread pool ran a kernel, or None if that is unknown."""
    stats = said.thread_scheduling_stats
    return dict(_pool(stats)) if isinstance(stats, dict) else None


def memory_told(said: KernelTold) -> MemoryTold | None:
    """Return the runtime's memory figures, unconverted, or None if there are none."""
    peak = said.mem_in_use_peak
    return None if peak is None else (said.mem_bytes_in_use, peak, said.mem_arena_held)


@lru_cache
def memory_values(told: MemoryTold) -> Mapping[str, float]:
    """Return the runtime's bytes of memory by kind."""
    values = zip(("in_use_bytes", "peak_bytes", "held_bytes"), map(_number, told), strict=True)
    return {key: value for key, value in values if value is not None}


def _arguments(said: KernelTold) -> Iterator[tuple[str, Argument]]:
    for value, ours in ((said.op_name, "op_type"), (said.provider, "provider")):
        if isinstance(value, str):
            yield ours, value
    inputs, outputs = _tensors(said.input_type_shape), _tensors(said.output_type_shape)
    precision = _precision(inputs, outputs)
    if precision is not None:
        yield "precision", precision
    for kind, tensors in (("input", inputs), ("output", outputs)):
        if tensors:
            yield f"{kind}_shape", tensors[0].shape
            yield f"{kind}s", tuple(f"{tensor.dtype} {tensor.shape}" for tensor in tensors)
    for theirs, ours in _SIZES:
        value = _number(getattr(said, theirs))
        if value is not None:
            yield ours, value


class _Tensor(Struct, frozen=True):
    dtype: str
    shape: str


def _tensors(value: object) -> list[_Tensor]:
    entries = value if isinstance(value, list) else []
    return [
        _Tensor(_TYPES.get(str(dtype), str(dtype)), _shape(dims))
        for entry in entries
        if isinstance(entry, dict)
        for dtype, dims in entry.items()
    ]


def _shape(dims: object) -> str:
    sizes = dims if isinstance(dims, list) else []
    return format_shape(tuple(whole(size) for size in sizes))


def _precision(inputs: list[_Tensor], outputs: list[_Tensor]) -> str | None:
    """Return the type of a kernel's first input, or of its output if that is an index."""
    found = inputs[:1]
    if not found or found[0].dtype in _INDEX_TYPES:
        found = outputs[:1] or found
    return found[0].dtype if found else None


def _pool(stats: Mapping[str, Any]) -> Iterator[tuple[str, Argument]]:
    """Yield how the kernel's work was distributed over the thread pool."""
    main = stats.get("main_thread")
    if isinstance(main, dict):
        for theirs, ours in (("thread_pool_name", "pool"), ("core", "core")):
            if isinstance(main.get(theirs), str | int):
                yield ours, main[theirs]
        for theirs, ours in _POOL_TIMES:
            value = _number(main.get(theirs))
            if value is not None:
                yield ours, value
    others = stats.get("sub_threads")
    if isinstance(others, dict):
        told = [_other(thread) for thread in others.values() if isinstance(thread, dict)]
        if told:
            yield "other_threads", tuple(told)


def _other(thread: Mapping[str, Any]) -> str:
    runs, core = whole(thread.get("num_run")), whole(thread.get("core"))
    # A thread that has not run has no core.
    return count_of(runs or 0, "run") + ("" if core is None else f" on core {core}")


def _number(value: object) -> int | None:
    """Return a count, which the runtime writes as text, or None for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return whole(value)
