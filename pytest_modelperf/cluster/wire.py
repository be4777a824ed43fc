"""Converting records to JSON text, and back by their types."""

from __future__ import annotations

import base64
import io
import json
import numbers
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from pytest_modelperf.errors import PLAIN, ClusterError, Wording
from pytest_modelperf.files.documents import describe_misfit
from pytest_modelperf.graph.weights.numbers import STORED_AS, name_of
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")


def to_text(value: object) -> str:
    """Return a record as JSON, with infinite figures as `Infinity`, as in Python's json module.

    An array becomes the base64 of an `.npy` file. A `Wording` is left out, because a machine that
    measures uses the plain one.
    """
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_to_plain)
    return json.dumps(plain, separators=(",", ":"))


def from_text(text: str, kind: type[T]) -> T:
    """Return the record that `to_text` wrote, or raise ClusterError if the text is not one."""
    try:
        return msgspec.convert(json.loads(text), type=kind, str_keys=True, dec_hook=_from_plain)
    except msgspec.ValidationError as error:
        misfit = describe_misfit(str(error))
        place = f", {misfit.place}" if misfit.place else ""
        raise _unreadable(kind, f"{place}: {misfit.problem}") from error
    except RecursionError as error:
        raise _unreadable(kind, ": it nests too deep") from error
    # The text is not JSON, or a key in it has half of a surrogate pair.
    except ValueError as error:
        raise _unreadable(kind, f": {printable(str(error))}") from error


def _unreadable(kind: type[object], problem: str) -> ClusterError:
    return ClusterError(
        f"a machine of the cluster sent no {kind.__name__} that can be read{problem}. Install the "
        "same version of pytest-modelperf everywhere."
    )


def _to_plain(value: object) -> int | float | str | None:
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, np.ndarray):
        return _write_array(value)
    if isinstance(value, Wording):
        return None
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _from_plain(kind: type[object], value: object) -> object:
    return PLAIN if kind is Wording else _read_array(value)


def _write_array(array: npt.NDArray[Any]) -> str:
    # The .npy format has no type for bfloat16 and similar ones, or for texts of any length.
    name = name_of(array.dtype)
    plain = array.view(STORED_AS[name]) if name in STORED_AS else array
    buffer = io.BytesIO()
    np.save(buffer, _texts(plain) if plain.dtype == object else plain, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _texts(array: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    """Decode the texts of an array. Some may be bytes in UTF-8."""
    texts = [text.decode() if isinstance(text, bytes) else text for text in array.reshape(-1)]
    return np.array(texts, dtype=str).reshape(array.shape)


def _read_array(value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"expected an array in base64, got {type(value).__name__}")
    # `np.load` would also read archives, and raises a different error for empty data.
    return np.lib.format.read_array(io.BytesIO(base64.b64decode(value)), allow_pickle=False)
