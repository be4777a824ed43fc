"""The words of a tuning beside its figures: refusals, and warnings about options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_modelperf.errors import Wording
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import shorten_list

_MOST_NAMED = 5

OUTPUTS_VARY = (
    "the outputs of the model differ from process to process, so they are not compared: give "
    "inputs with --input-file, or compare them yourself"
)
_PRECISION = (
    "{} may change the precision: the outputs were compared on these inputs alone, and accuracy "
    "was not measured"
)
# The warnings that go with a recommended option.
_WARNINGS: Mapping[str, str] = {
    **{
        key: _PRECISION.format(key)
        for key in ("INFERENCE_PRECISION_HINT", "provider.load_config", "provider.trt_fp16_enable")
    },
    "session.set_denormal_as_zero": (
        "session.set_denormal_as_zero makes numbers zero that are too small for full precision. "
        "It has to stand in the options of the first session of a program"
    ),
    "CPU_DENORMALS_OPTIMIZATION": (
        "CPU_DENORMALS_OPTIMIZATION makes numbers zero that are too small for full precision"
    ),
    "session.intra_op.allow_spinning": (
        "inferences ran back to back: in a program that waits between them, spinning threads also "
        "take processor time"
    ),
}


def find_warnings(options: Mapping[str, str]) -> Iterator[str]:
    return (text for key, text in _WARNINGS.items() if key in options)


def describe_uncompared(name: str, reason: str) -> str:
    return f"nothing tells whether {name} changes the outputs: {reason}. Compare them yourself"


def describe_latency_refusal(limit_ms: float) -> str:
    return f"its median latency is not shown to be within {limit_ms:g} ms"


def describe_memory_refusal(taken: int | None, limit: int) -> str:
    if taken is None:
        return "it is not known how much memory it takes"
    return f"it takes {format_bytes(taken)} of memory, allowed {format_bytes(limit)}"


def describe_unseen(names: Sequence[str], wording: Wording) -> Iterator[str]:
    if names:
        few = shorten_list(names, _MOST_NAMED)
        yield f"there was no time for {few}: {wording.names['max_seconds']} makes more"
