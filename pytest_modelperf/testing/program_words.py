"""Reading the keywords of `modelperf.check` that are not passed to the function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.limits import Tolerances, read_tolerances
from pytest_modelperf.errors import UsageError
from pytest_modelperf.programs.messages import RECORDED_ENVIRONMENT
from pytest_modelperf.spec.sources import RunSettings

WORDS = ("against", "environment", "paths", "tolerance", "outputs", "cores")
# Two processes of a program differ by more than two sessions of a model do.
_TOLERANCE = 0.05


class ProgramWords(Struct, frozen=True, kw_only=True):
    """The settings of a test for the check of its program.

    `cores` are the ids of the processors to which it is pinned. None leaves it unpinned.
    """

    against: str | None
    environment: str | None
    paths: tuple[str, ...]
    tolerances: Tolerances
    outputs: str | None
    cores: tuple[int, ...] | None


def read_words(given: Mapping[str, object], settings: RunSettings) -> ProgramWords:
    """Read the keywords of a call, or raise UsageError for an invalid one."""
    return ProgramWords(
        against=_against(given.get("against")) or settings.against,
        environment=_environment(given.get("environment")),
        paths=_paths(given.get("paths", ())),
        tolerances=_tolerances(settings.tolerances, given.get("tolerance")),
        outputs=_outputs(given.get("outputs")),
        cores=_cores(given.get("cores")),
    )


def _tolerances(settings: Tolerances, given: object) -> Tolerances:
    if given is not None:
        found = read_tolerances(given, "modelperf.check: tolerance")
        is_median_given = not isinstance(given, Mapping) or bool({"p50"} & set(given))
    else:
        found, is_median_given = settings, settings != Tolerances()
    median = found.of(50.0) if is_median_given else _TOLERANCE
    named = {percent: found.of(percent) for percent in found.named}
    return replace(found, shares=tuple(sorted({**named, 50.0: median}.items())))


def _against(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"modelperf.check: against takes a text such as 'main', not {value!r}.")
    return value


def _environment(value: object) -> str | None:
    if value not in {None, RECORDED_ENVIRONMENT}:
        raise UsageError(
            f"modelperf.check: environment can be {RECORDED_ENVIRONMENT!r}, not {value!r}."
        )
    return None if value is None else RECORDED_ENVIRONMENT


def _outputs(value: object) -> str | None:
    if callable(value):
        return "given"
    if value not in {None, "==", "allclose"}:
        raise UsageError(
            f"modelperf.check: outputs can be '==', 'allclose' or a function of both results, not "
            f"{value!r}."
        )
    return None if value is None else str(value)


def _paths(value: object) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        value = (value,)
    if not isinstance(value, Sequence) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(
            f"modelperf.check: paths takes folders of the project such as ['src'], not {value!r}."
        )
    return tuple(str(each) for each in value)


def _cores(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"modelperf.check: cores takes a number such as 1, not {value!r}.")
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if value > len(allowed):
        raise UsageError(
            f"modelperf.check: {value} cores are wanted, and a program can be pinned to "
            f"{len(allowed)} here."
        )
    return tuple(allowed[:value])
