"""The engine options that make a worker run a model in another way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pytest_modelperf.profiler.worker.gateway import Worker

Kind: TypeAlias = Literal["precision", "sparsity"]


def variant_options(
    worker: Worker, kind: Kind, value: str | float, options: Mapping[str, str]
) -> Mapping[str, str] | None:
    """The additional options; None if the engine has none for it.

    `value` is a precision, such as `bf16`, or the share of the weights that is zero. If the engine
    or the machine of the worker cannot do it, a UsageError says what they can do.
    """
    found: Mapping[str, str] | None = worker.ask(
        "variant_options",
        f"as the options for its {kind} were asked for",
        kind=kind,
        value=value,
        options=dict(options),
    )
    return found
