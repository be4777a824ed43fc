"""Records as the text of JSON, and back by their types."""

from __future__ import annotations

import json
import numbers
from typing import TypeVar

import msgspec

from pytest_modelperf.errors import ClusterError
from pytest_modelperf.files.documents import describe_misfit
from pytest_modelperf.text.escaping import printable

T = TypeVar("T")


def to_text(value: object) -> str:
    """A record as JSON. Infinite figures are `Infinity`, as Python writes and reads them."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_as_number)
    return json.dumps(plain, separators=(",", ":"))


def from_text(text: str, kind: type[T]) -> T:
    """The record that `to_text` was given; ClusterError if the text is none of this kind."""
    try:
        return msgspec.convert(json.loads(text), type=kind, str_keys=True)
    except msgspec.ValidationError as error:
        misfit = describe_misfit(str(error))
        where = f", {misfit.place}" if misfit.place else ""
        raise _unreadable(kind, f"{where}: {misfit.problem}") from error
    # The last two: what is nested too deeply, and a key that is half of a character.
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        raise _unreadable(kind, f": {printable(str(error))}") from error


def _unreadable(kind: type[object], problem: str) -> ClusterError:
    return ClusterError(
        f"a machine of the cluster sent no {kind.__name__} that can be read{problem}. Install the "
        "same version of pytest-modelperf everywhere."
    )


def _as_number(value: object) -> int | float:
    """A number of numpy as one of Python."""
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError(f"a {type(value).__name__} has no form as JSON")
