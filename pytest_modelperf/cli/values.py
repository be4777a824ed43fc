"""The values of options that are lists, pairs and sizes, read from their text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pytest_modelperf.errors import UsageError

_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_BYTES_PER_MB = 1_000_000
# More than any machine has.
_MOST_MEGABYTES = 1e12


def parse_threshold(option: str, text: str) -> float:
    """Returns the milliseconds, which may be a fraction."""
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else 0.0
    # A text with enough digits is read as 0 or as infinity.
    if not 0 < value < math.inf:
        raise UsageError(f"{option} takes milliseconds above 0, such as 20 or 0.5; not {text!r}.")
    return value


def parse_megabytes(option: str, text: str) -> int:
    """Returns the bytes of a number of megabytes, which may be a fraction."""
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else 0.0
    if not 0 < value < _MOST_MEGABYTES:
        raise UsageError(f"{option} takes megabytes above 0, such as 300 or 12.5; not {text!r}.")
    return round(value * _BYTES_PER_MB)


def parse_outputs(command: str, text: str) -> float:
    """Returns how far the outputs of a model may differ, from the --tolerance of a command."""
    from pytest_modelperf.comparing.limits import OUTPUTS, read_share

    name, _, share = text.partition("=")
    if name.strip() != OUTPUTS or not share:
        raise UsageError(
            f"--tolerance of {command} is for outputs alone, such as outputs=0.01; not {text!r}."
        )
    return read_share(share, f"--tolerance: {OUTPUTS}")


def parse_wanted(option: str, texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns the values of each option of an engine that was named, each once."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, separator, listed = text.partition("=")
        values = tuple(value.strip() for value in listed.split(","))
        if not (key.strip() and separator and all(values)):
            raise UsageError(
                f"{option} takes an option of the engine and its values, such as "
                f"graph_optimization_level=basic,extended; not {text!r}."
            )
        found[key.strip()] = tuple(dict.fromkeys((*found.get(key.strip(), ()), *values)))
    return found


def parse_shares(option: str, text: str) -> tuple[float, ...]:
    """Returns the shares in a comma-separated list, each once, the smallest first."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0.0 <= share < 1.0 for share in shares):
        raise UsageError(f"{option} takes shares from 0 to below 1, such as 0.5,0.9; not {text!r}.")
    return tuple(sorted(set(shares)))


def parse_forms(option: str, text: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = [part.strip().lower() for part in text.split(",")]
    if not all(name in known for name in names):
        raise UsageError(f"{option} takes {', '.join(known)}; not {text!r}.")
    return tuple(dict.fromkeys(form for name in names for form in known[name]))


def parse_interpreter(option: str, path: str | None, *, is_here: bool) -> str | None:
    """Returns the gateway to a Python interpreter, if one is given.

    One that is not here is a path on the machine that measures, which says if it is not there.
    """
    if path is None:
        return None
    from pytest_modelperf.profiler.worker.gateway import interpreter_spec, python_spec

    return interpreter_spec(path, option) if is_here else python_spec(path)
