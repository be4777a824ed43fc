"""The outputs of a model, as its session gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pytest_modelperf.profiler.sampling.worker_bench import Rig

# The limit on all outputs of a model together; sending more would take too long.
MAX_BYTES = 64 << 20

# Type, shape and bits of an output; no bits where it was too large.
Sent: TypeAlias = "tuple[str, tuple[int, ...], bytes | None]"


def read_outputs(rig: Rig) -> Mapping[str, Sent] | None:
    """The outputs of the session that is open; None where the engine cannot tell."""
    found: Mapping[str, Sent] | None = rig.worker.ask(
        "outputs",
        "as its outputs were read",
        side=rig.side,
        max_bytes=MAX_BYTES,
        feed=rig.still_feed,
    )
    return found
