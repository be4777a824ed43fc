"""Read the inputs that a user gives: arrays by name, a file, or a function that makes them."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from pytest_modelperf.errors import BindingError, Remedy, UsageError
from pytest_modelperf.files.documents import require_file
from pytest_modelperf.graph.binding import BoundInputs, DeclaredInput, InputSpec
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.graph.weights.numbers import STORED_AS, name_of
from pytest_modelperf.profiler.inputs.made import Feed, input_types, make_input
from pytest_modelperf.profiler.records import StoredInputs
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.text.words import suggestion

# Not quoted, because msgspec evaluates the types of fields.
Array: TypeAlias = npt.NDArray[Any]
# A function gets the type and shape of every input by name, and returns arrays by name.
InputTypes: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
MakeInputs: TypeAlias = Callable[[InputTypes], Mapping[str, object]]
GivenSource: TypeAlias = "Mapping[str, object] | str | os.PathLike[str] | MakeInputs"

# Larger inputs do not hold shapes, so their values are not needed before the model runs.
_MAX_VALUES = 1024
# Inputs with at most this many values are shown in full: shapes or counts, not data.
_SHOWN_VALUES = 8
_SHOWN_LETTERS = 80
# Values are stored as floats, which cannot represent all integers beyond this.
_EXACT = 2**53


class GivenInputs(Struct, frozen=True, eq=False):
    """Inputs by name, or a function that makes them, and how messages name their source."""

    source: str
    arrays: Mapping[str, Array] = field(default_factory=dict)
    function: MakeInputs | None = None

    def feeds(self, graph: Graph, inputs: BoundInputs, model: str = "the model") -> dict[str, Feed]:
        """Return the given arrays, checked and converted to the inputs of the bound model."""
        names = [tensor.name for tensor in graph.inputs]
        arrays = self.arrays
        if self.function is not None:
            arrays = call_for_inputs(self.function, input_types(graph, inputs, model), self.source)
        _check_names(arrays, names, self.source, model)
        dtypes = {tensor.name: tensor.dtype for tensor in graph.inputs}
        feeds = {}
        for name, array in arrays.items():
            dtype, stored = _stored(name, array, dtypes[name], self.source, model)
            shape = inputs.shapes.get(name)
            if shape is not None and array.shape != shape:
                raise BindingError(
                    f"the input {printable(name)!r} of {model} is {format_shape(shape)}, but "
                    f"{self.source} has {format_shape(array.shape)}.",
                    Remedy(
                        "Give an array of that shape, or ask for its batch size and dimensions "
                        "with {batch} and {dims}."
                    ),
                )
            feeds[name] = Feed(dtype, stored)
        return feeds


def read_given(source: GivenSource) -> GivenInputs:
    """Read a mapping or an `.npz` file of inputs, or take a function that will make them."""
    if isinstance(source, Mapping):
        name = "the mapping of inputs"
        return GivenInputs(name, _as_arrays(source, name))
    if isinstance(source, (str, os.PathLike)):
        return _read_npz(Path(source))
    if callable(source):
        return GivenInputs(_describe(source), function=source)
    raise UsageError(
        "inputs are given as a mapping of arrays, the path of an .npz file, or a function that "
        f"makes them, not as {type(source).__name__}."
    )


def specs_of(
    given: GivenInputs, declared: Sequence[DeclaredInput], model: str = "the model"
) -> tuple[InputSpec, ...]:
    """Return the types and shapes of the given arrays, from which dimensions get their sizes."""
    dtypes = {i.name: i.dtype for i in declared}
    _check_names(given.arrays, list(dtypes), given.source, model)
    specs = []
    for name, array in given.arrays.items():
        dtype, _ = _stored(name, array, dtypes[name], given.source, model)
        specs.append(InputSpec(name, dtype, array.shape, _value(array)))
    return tuple(specs)


def describe_given(
    specs: Sequence[InputSpec], feeds: Mapping[str, Feed], seed: int = 0
) -> StoredInputs:
    """Return the stored form of the user's inputs. `seed` is the seed of all other inputs."""
    given = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}
    if not given and not feeds and not seed:
        return StoredInputs(specs={}, sha256=None)
    digest = hashlib.sha256(repr(seed).encode())
    for spec in given.values():
        digest.update(repr((spec.name, spec.dtype, spec.shape, spec.texts or spec.value)).encode())
    for name, feed in sorted(feeds.items()):
        dtype, stored, shape, values = feed.to_wire()
        digest.update(repr((name, dtype, stored, shape)).encode())
        digest.update(values if isinstance(values, bytes) else repr(values).encode())
    described = {name: _described(spec) for name, spec in given.items()}
    return StoredInputs(specs=described, sha256=digest.hexdigest())


def _described(spec: InputSpec) -> str:
    """Return a text such as `int64:1:5`, without long values, which are only in the digest."""
    text = f"{spec.dtype}:{'x'.join(map(str, spec.shape))}"
    if spec.texts is not None:
        joined = ",".join(spec.texts)
        return f"{text}:{joined}" if len(joined) <= _SHOWN_LETTERS else text
    if spec.value is None or len(spec.value) > _SHOWN_VALUES:
        return text
    return f"{text}:{','.join(f'{value:.17g}' for value in spec.value)}"


def make_arguments(
    specs: Sequence[InputSpec], seed: int = 0, given: GivenInputs | None = None
) -> dict[str, Feed]:
    """Return the arguments of a Python function: given arrays, and others made from `specs`."""
    what = "the function"
    feeds = {spec.name: make_input(spec, seed, model=what) for spec in specs}
    if given is None:
        return feeds
    arrays = given.arrays
    if given.function is not None:
        types = {spec.name: (spec.dtype, spec.shape) for spec in specs}
        arrays = call_for_inputs(given.function, types, given.source)
    for name, array in arrays.items():
        spec = next((s for s in specs if s.name == name), None)
        dtype = name_of(array.dtype) if spec is None else spec.dtype
        dtype, stored = _stored(name, array, dtype, given.source, what)
        feeds[name] = Feed(dtype, stored)
    return feeds


def _value(array: Array) -> tuple[float, ...] | None:
    if array.dtype.kind not in "iub" or not 0 < array.size <= _MAX_VALUES:
        return None
    values = [int(value) for value in array.reshape(-1)]
    return tuple(map(float, values)) if max(map(abs, values)) <= _EXACT else None


def _check_names(
    arrays: Mapping[str, Array], names: Sequence[str], source: str, model: str
) -> None:
    for name in arrays:
        if name not in names:
            hint = suggestion(printable(name), map(printable, names))
            takes = ", ".join(printable(each) for each in names[:10]) or "none"
            raise BindingError(
                f"{source} has {printable(name)!r}, but {model} has no such input.{hint} "
                f"Its inputs: {takes}."
            )


def _stored(
    name: str, array: Array, dtype: str | None, source: str, model: str
) -> tuple[str, Array]:
    """Return the model's type and the array as a worker needs it, or raise BindingError."""
    what = f"the input {printable(name)!r} of {model}"
    if dtype is None:
        raise BindingError(
            f"{what} is a sequence, an optional or a map, and cannot be given as an array. Such "
            "a model cannot be measured yet: export it with tensors only."
        )
    found = name_of(array.dtype)
    if found == dtype:
        if dtype == "string":
            return dtype, _texts(name, array, source)
        stored = STORED_AS.get(dtype)
        if stored is None:
            return dtype, _native(array)
        # Not ascontiguousarray, which turns a scalar into a vector.
        return dtype, np.require(array, requirements=["C"]).view(stored)
    if found == STORED_AS.get(dtype):
        return dtype, _native(array)
    raise BindingError(f"{what} is {dtype}, but {source} has {found}. {_conversion(name, dtype)}")


def _conversion(name: str, dtype: str) -> str:
    shown = printable(name)
    if dtype == "string":
        return f"Give an array of str, such as {shown}.astype(str)."
    if dtype in STORED_AS:
        return f"Convert it with ml_dtypes, or give its bits as an array of {STORED_AS[dtype]}."
    return f"Convert it with {shown}.astype({dtype!r})."


def _native(array: Array) -> Array:
    """Return a contiguous array in this machine's byte order."""
    return np.require(array, array.dtype.newbyteorder("="), ["C_CONTIGUOUS"])


def _texts(name: str, array: Array, source: str) -> Array:
    try:
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.reshape(-1)]
    except UnicodeDecodeError as error:
        raise BindingError(
            f"{source} has bytes in the strings of {printable(name)!r} that are not UTF-8: "
            f"{printable(repr(error.object))}. Give an array of str."
        ) from error
    for text in texts:
        if not isinstance(text, str):
            raise BindingError(
                f"{source} has a {type(text).__name__} among the strings of {printable(name)!r}. "
                "Give an array of str or of numbers of one type."
            )
    made = np.empty(len(texts), dtype=object)
    made[:] = texts
    return made.reshape(array.shape)


def _as_arrays(values: Mapping[str, object], source: str) -> dict[str, Array]:
    arrays = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise UsageError(f"{source} has the key {name!r}; names of inputs must be strings.")
        try:
            arrays[name] = np.asarray(value)
        except Exception as error:
            raise UsageError(
                f"{source} has {type(value).__name__} for {printable(name)!r}, which numpy cannot "
                f"make an array of: {printable(str(error))}"
            ) from error
    return arrays


def _read_npz(path: Path) -> GivenInputs:
    name = printable(str(path))
    try:
        require_file(path)
        # Opened here, because numpy leaves a file open that is not an archive.
        with path.open("rb") as file:
            return GivenInputs(name, _read_archive(file, name))
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"there is no file {name}. Give the path of an .npz file.") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
    except MemoryError as error:
        raise UsageError(
            f"{name} claims more data than fits into memory. Save smaller inputs in it."
        ) from error
    except Exception as error:
        # numpy, zipfile and the decompressors raise errors of many types.
        raise UsageError(
            f"{name} is not an .npz file, or is damaged. Write it with numpy.savez(path, **inputs)."
        ) from error


def _read_archive(file: BinaryIO, name: str) -> dict[str, Array]:
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise UsageError(
            f"{name} holds a single array without a name. Save inputs by their names: "
            "numpy.savez(path, **{'input_ids': ids})."
        )
    with loaded:
        return {key: _read_member(loaded, key, name) for key in loaded.files}


def _read_member(archive: Mapping[str, Any], key: str, name: str) -> Array:
    try:
        value = archive[key]
    except ValueError as error:
        if "pickle" not in str(error).lower():
            raise
        raise UsageError(
            f"{name} holds Python objects for {printable(key)!r}, which are not loaded because "
            "that can run any code. Save numbers, or texts with .astype(str)."
        ) from error
    if not isinstance(value, np.ndarray):
        raise UsageError(
            f"{name} holds {printable(key)!r}, which is not an array. "
            "Write the file with numpy.savez."
        )
    return value


def _describe(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return printable(f"the function {name}{place}")


def call_for_inputs(function: MakeInputs, types: InputTypes, source: str) -> dict[str, Array]:
    """Call a user's function with types and shapes, and return the arrays that it makes."""
    try:
        made: object = function(types)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{source} failed to make inputs at {printable(last.filename)}:{last.lineno}: "
            f"{type(error).__name__}: {printable(str(error))}"
        ) from error
    if not isinstance(made, Mapping):
        raise UsageError(
            f"{source} returned {type(made).__name__}; it must return a mapping from the names of "
            "inputs to arrays."
        )
    return _as_arrays(made, source)
