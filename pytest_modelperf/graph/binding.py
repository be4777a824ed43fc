"""Give every dimension of a model's inputs a size: the batch, named dimensions, whole inputs."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, OpenSizesError, Remedy, UsageError
from pytest_modelperf.graph.structure import BITS, GenerationPhase
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.text.words import shorten_list, suggestion

# A dimension as a model declares it: fixed, named, or neither.
Dim: TypeAlias = "int | str | None"

# The largest accepted input: 2**40 elements are 4 TiB of float32.
MAX_ELEMENTS = 2**40
# A message lists at most this many of the existing names.
_MOST_NAMED = 10

_BATCH_NAMES = frozenset({"batch", "batch_size", "batchsize", "n", "bs", "b", "none"})
# tf2onnx gives a number to each open size of each input. torch.export does so for each size that no
# operation requires to equal another, such as the batch of a mask. So equal sizes differ in name.
_NUMBERED = re.compile(r"(unk__|s)[0-9]+")
# An input of three channels counts as an image if its sides have at least this many pixels.
_LEAST_SIDE = 32

_SHORT_DTYPES: Mapping[str, str] = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bf16": "bfloat16",
    "str": "string",
}
_DTYPES = frozenset(BITS) | {"string"}
# Longer numbers cannot be sizes, and Python refuses to convert very long ones.
_SIZE = re.compile(r"[0-9]{1,18}")
# The shape of a vector with one element for each given value.
_AS_MANY = "-1"
_INPUT = re.compile(
    r"(?P<name>.+?):(?P<dtype>[a-z][a-z0-9]*):(?P<shape>(?:\d{1,18}(?:x\d{1,18})*)?|-1(?=:))"
    r"(?::(?P<value>.*))?",
    re.DOTALL,
)


class DeclaredInput(Struct, frozen=True):
    """An input as the model declares it. `dims` is None if even the rank is undeclared.

    `known` are sizes of its named dimensions that the model fixes elsewhere. `batch_axis` is the
    axis of the batch, if it follows from an operator: for a recurrent state it is the second axis.
    """

    name: str
    dtype: str | None
    dims: tuple[Dim, ...] | None
    known: tuple[tuple[str, int], ...] = ()
    batch_axis: int | None = None


class InputSpec(Struct, frozen=True):
    """An input that the user gives: a single value fills it. One of type `string` has `texts`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    value: tuple[float, ...] | None = None
    texts: tuple[str, ...] | None = None


class Binding(Struct, frozen=True):
    """The dimensions that the user gives. A batch size of None means the model's own.

    A `phase` determines lengths, masks and positions: those of its `step`, or else of its middle
    step. `state` maps inputs to outputs, for the pairs that the user names. With `leaves_open`, an
    input with a dimension that has no size keeps the shape that the model declares. `members` are
    the bindings of the members of a workload, and the dimensions are those of the largest member.
    """

    batch_size: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    phase: GenerationPhase | None = None
    state: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    leaves_open: bool = False
    members: tuple[Binding, ...] = ()

    @property
    def own_dims(self) -> dict[str, int]:
        """The dimensions by their names: for a workload, those that all its members share."""
        return {
            name: size
            for name, size in sorted(self.dims.items())
            if all(member.dims.get(name) == size for member in self.members)
        }


class BoundInputs(Struct, frozen=True):
    """Every input with its shape.

    `rebound`: a dimension that the model fixes has another size, so the other shapes that the model
    declares are no longer valid. `changed_inputs` are the inputs of which a dimension other than
    the batch has changed.
    """

    batch_size: int
    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...] | None]
    values: Mapping[str, InputSpec]
    rebound: bool
    changed_inputs: tuple[str, ...] = ()


class BatchDim(Struct, frozen=True):
    """The batch axes of the inputs, as (input, axis), and the fixed batch size if there is one."""

    name: str | None
    places: tuple[tuple[str, int], ...]
    fixed: int | None


def parse_input_spec(text: str) -> InputSpec:
    """Parse `name:dtype:shape[:value]`, as in `ids:i64:1x64:7`."""
    match = _INPUT.fullmatch(text)
    dtype = _SHORT_DTYPES.get(match["dtype"], match["dtype"]) if match else ""
    if match is None or dtype not in _DTYPES:
        raise UsageError(
            f"the input {printable(text)!r} cannot be read. Give it as name:dtype:shape or "
            "name:dtype:shape:value, for example ids:i64:1x64 or ratio:f32:1:0.25 "
            f"(types: {', '.join(sorted(_SHORT_DTYPES))} or a full name such as float32)."
        )
    written = match["value"]
    parts = [] if written is None else written.split(",")
    shape = tuple(map(int, filter(None, match["shape"].split("x"))))
    if match["shape"] == _AS_MANY:
        shape = (len(parts),)
    if dtype == "string" and prod(shape) == 1 and match["shape"] != _AS_MANY:
        # The commas belong to the text.
        parts = [] if written is None else [written]
    if written is not None and len(parts) not in (1, prod(shape)):
        raise UsageError(
            f"the input {printable(match['name'])!r} has {prod(shape)} elements, "
            f"but {len(parts)} values are given. Give one value, or one for each element."
        )
    spec = InputSpec(match["name"], dtype, shape)
    if written is None:
        return spec
    if dtype == "string":
        return replace(spec, texts=tuple(parts))
    try:
        return replace(spec, value=tuple(map(float, parts)))
    except ValueError:
        raise UsageError(
            f"the value {printable(written)!r} of the input {printable(match['name'])!r}"
            " is not a number or a list such as 1,2,3."
        ) from None


def parse_dim(text: str) -> tuple[str, int]:
    """Parse the name and size in `name=size`, as in `seq=64`."""
    name, separator, size = text.rpartition("=")
    if not separator or not name.strip() or not _SIZE.fullmatch(size.strip()):
        raise UsageError(
            f"the dimension {printable(text)!r} cannot be read. Give it as name=size, "
            "for example seq=64."
        )
    return name.strip(), int(size)


def dim_names(inputs: Sequence[DeclaredInput]) -> frozenset[str]:
    """Return the names of the dimensions that a user can give a size to."""
    return frozenset(
        name
        for declared in inputs
        for axis, dim in enumerate(declared.dims or ())
        if (name := dim_name(declared, axis, dim)) is not None
    )


def find_batch(inputs: Sequence[DeclaredInput]) -> BatchDim | None:
    """Find the batch dimension: a name that all inputs share, or else their common leading size."""
    # If the name is only a number, such as `unk__12` or `s12`, all leading names of this kind mean
    # the batch.
    shaped = [i for i in inputs if i.dims]
    if not shaped:
        return None
    name = _batch_name(shaped)
    if name is not None:
        numbered = _numbered_places(shaped) if _NUMBERED.fullmatch(name) else ()
        places = (*_places(shaped, name), *numbered, *_batch_axes(shaped))
        return BatchDim(name, tuple(dict.fromkeys(places)), None)
    unnamed = tuple(
        (i.name, 0) for i in shaped if i.dims and i.dims[0] is None and not i.batch_axis
    )
    if unnamed:
        return BatchDim(None, (*unnamed, *_batch_axes(shaped)), None)
    leading = {i.dims[i.batch_axis or 0] for i in shaped if i.dims}
    if len(leading) != 1 or any(is_bare_image(i.dims or ()) for i in shaped):
        return None
    size = leading.pop()
    places = tuple((i.name, i.batch_axis or 0) for i in shaped)
    return BatchDim(None, places, size) if isinstance(size, int) else None


def is_bare_image(dims: Sequence[Dim]) -> bool:
    """Whether an input is an image without a batch, as torchvision's detectors expect it."""
    height_and_width = (dim for dim in dims[1:] if isinstance(dim, int))
    return len(dims) == 3 and dims[0] == 3 and all(dim >= _LEAST_SIDE for dim in height_and_width)


def open_dims(
    inputs: Sequence[DeclaredInput], binding: Binding, model: str
) -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Return the sizes that a binding lacks and that follow from no others, with their places."""
    binder = _Binder(inputs, replace(binding, leaves_open=True), model)
    binder.bind()
    sizes = {**binder.sizes, **dict.fromkeys(binder.missing, 1)}
    return {
        name: tuple(places)
        for name, places in binder.missing.items()
        if evaluate(name, {each: size for each, size in sizes.items() if each != name}) is None
    }


def bind_inputs(inputs: Sequence[DeclaredInput], binding: Binding, model: str) -> BoundInputs:
    """Bind every input to a shape. BindingError names what is missing or impossible."""
    return _Binder(inputs, binding, model).bind()


def evaluate(expression: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of a dimension such as `past_length + 1`, or None if a name is unbound."""
    if len(expression) > 200:
        return None
    parsed = parse_expression(expression)
    try:
        return None if parsed is None else _evaluate_node(parsed, sizes)
    except (ValueError, KeyError, ZeroDivisionError, MemoryError, RecursionError):
        return None


def parse_expression(text: str) -> ast.expr | None:
    """Parse the name of a dimension as an expression, or return None if it is not an expression."""
    with warnings.catch_warnings():
        # Python warns about names such as `1if` and `2is`, because in code they would be mistakes.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


def _batch_name(shaped: Sequence[DeclaredInput]) -> str | None:
    seen = Counter(d for i in shaped for d in set(i.dims or ()) if isinstance(d, str))
    shared = [d for d in shaped[0].dims or () if isinstance(d, str) and seen[d] == len(shaped)]
    leading = [i.dims[0] for i in shaped if i.dims and isinstance(i.dims[0], str)]
    by_name = [d for d in [*shared, *leading] if d.lower() in _BATCH_NAMES]
    if by_name:
        return by_name[0]
    # A name other than "batch" must be on axis 0: a shared "seq" on axis 1 is not a batch. Neither
    # is a name that leads only vectors and is on a later axis elsewhere, as for token positions.
    leads = {i.dims[0] for i in shaped if i.dims and len(i.dims) > 1}
    behind = {dim for i in shaped for dim in (i.dims or ())[1:]}
    leading = [name for name in leading if name in leads or name not in behind]
    return max(leading, key=lambda d: (seen[d], -leading.index(d)), default=None)


def _places(shaped: Sequence[DeclaredInput], name: str) -> tuple[tuple[str, int], ...]:
    return tuple(
        (i.name, axis) for i in shaped for axis, dim in enumerate(i.dims or ()) if dim == name
    )


def _numbered_places(shaped: Sequence[DeclaredInput]) -> tuple[tuple[str, int], ...]:
    """Return the leading places whose names are only numbers and are on no later axis."""
    leading = ((i, i.dims[0]) for i in shaped if i.dims and not i.batch_axis)
    behind = {dim for i in shaped for dim in (i.dims or ())[1:]}
    return tuple(
        (i.name, 0) for i, dim in leading if dim not in behind and _NUMBERED.fullmatch(str(dim))
    )


def _batch_axes(shaped: Sequence[DeclaredInput]) -> tuple[tuple[str, int], ...]:
    """Return the places where the batch follows from an operator, if the model leaves them open."""
    return tuple(
        (i.name, i.batch_axis)
        for i in shaped
        if i.dims and i.batch_axis and i.dims[i.batch_axis] is None
    )


class _Binder:
    def __init__(self, inputs: Sequence[DeclaredInput], binding: Binding, model: str) -> None:
        self.inputs = inputs
        self.model = model
        self.binding = binding
        self.specs = {spec.name: spec for spec in binding.inputs}
        self.batch = find_batch(inputs)
        self.sizes: dict[str, int] = dict(binding.dims)
        self.batch_size = binding.batch_size
        self.rebound = False
        self.changed_inputs: list[str] = []
        self.missing: dict[str, list[tuple[str, int]]] = {}

    def bind(self) -> BoundInputs:
        self.check_request()
        self.sizes_from_specs()
        self.sizes_from_model()
        self.bind_batch()
        shapes = {declared.name: self.shape_of(declared) for declared in self.inputs}
        if self.missing and not self.binding.leaves_open:
            raise self.missing_dims()
        for name, shape in shapes.items():
            self.check_shape(name, shape)
        given = (s for s in self.binding.inputs if s.value is not None or s.texts is not None)
        return BoundInputs(
            batch_size=1 if self.batch_size is None else self.batch_size,
            dims=self.sizes,
            shapes=shapes,
            values={spec.name: spec for spec in given},
            rebound=self.rebound,
            changed_inputs=tuple(dict.fromkeys(self.changed_inputs)),
        )

    def check_request(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise UsageError(f"a batch size of {self.batch_size} makes no sense: give 1 or more.")
        names = [i.name for i in self.inputs]
        for name in self.specs:
            if name not in names:
                raise BindingError(
                    f"{self.model} has no input {printable(name)!r}.{_nearest(name, names)}"
                )
        for name, number in Counter(spec.name for spec in self.binding.inputs).items():
            if number > 1:
                raise BindingError(
                    f"the input {printable(name)!r} of {self.model} is given {number} times.",
                    Remedy("Give it once, by {inputs} or in a file of inputs."),
                )
        known = dim_names(self.inputs)
        for name, size in self.binding.dims.items():
            is_batch = self.batch is not None and name == self.batch.name
            if size < is_batch:
                raise UsageError(
                    f"the dimension {printable(name)!r} cannot be {size}: give "
                    f"{int(is_batch)} or more."
                )
            if name not in known:
                raise BindingError(
                    f"{self.model} has no dimension {printable(name)!r} in its inputs."
                    f"{_nearest(name, sorted(known))}"
                )

    def sizes_from_specs(self) -> None:
        for declared in self.inputs:
            spec = self.specs.get(declared.name)
            if spec is None:
                continue
            if declared.dtype is not None and spec.dtype != declared.dtype:
                raise BindingError(
                    f"the input {printable(declared.name)!r} of {self.model} is {declared.dtype}, "
                    f"not {spec.dtype}: give it with that type."
                )
            if declared.dims is None:
                continue
            if len(declared.dims) != len(spec.shape):
                raise BindingError(
                    f"the input {printable(declared.name)!r} of {self.model} has "
                    f"{len(declared.dims)} dimensions ({_declared_shape(declared)}), but "
                    f"{format_shape(spec.shape)} is given, which has {len(spec.shape)}. "
                    "Give a size for each."
                )
            for axis, (dim, size) in enumerate(zip(declared.dims, spec.shape, strict=True)):
                name = dim_name(declared, axis, dim)
                if name is None:
                    self.change(declared, axis, is_other=dim != size)
                elif self.sizes.setdefault(name, size) != size:
                    raise BindingError(
                        f"the dimension {printable(name)!r} of {self.model} is given as "
                        f"{self.sizes[name]}, but the input {printable(declared.name)!r} "
                        f"({format_shape(spec.shape)}) makes it {size}. Give it once."
                    )

    def sizes_from_model(self) -> None:
        """Set the dimensions that the model fixes elsewhere, unless two inputs disagree."""
        known: dict[str, set[int]] = defaultdict(set)
        for name, size in (each for declared in self.inputs for each in declared.known):
            known[name].add(size)
        for name, sizes in known.items():
            if len(sizes) == 1:
                self.sizes.setdefault(name, *sizes)

    def change(self, declared: DeclaredInput, axis: int, *, is_other: bool) -> None:
        self.rebound |= is_other
        is_batch = self.batch is not None and (declared.name, axis) in self.batch.places
        if is_other and not is_batch:
            self.changed_inputs.append(declared.name)

    def bind_batch(self) -> None:
        batch = self.batch
        if batch is None and self.batch_size is not None:
            raise self.no_batch()
        if batch is None:
            return
        given = self.given_batch(batch)
        if given is not None and self.batch_size not in {None, given}:
            raise BindingError(
                f"the batch of {self.model} is given as {self.batch_size} and as {given}. "
                "Give it once."
            )
        usual = 1 if batch.fixed is None else batch.fixed
        known = (size for size in (given, self.batch_size, usual) if size is not None)
        self.batch_size = next(known)
        if batch.fixed is not None:
            self.rebound |= self.batch_size != batch.fixed
        elif batch.name is not None:
            for name in self.batch_names(batch):
                self.sizes.setdefault(name, self.batch_size)

    def batch_names(self, batch: BatchDim) -> Iterator[str]:
        """Yield the names of the batch in all inputs. They differ only if they are only numbers."""
        for declared in self.inputs:
            for axis, dim in enumerate(declared.dims or ()):
                if (declared.name, axis) in batch.places and isinstance(dim, str):
                    yield dim

    def given_batch(self, batch: BatchDim) -> int | None:
        if batch.name is not None and batch.name in self.sizes:
            return self.sizes[batch.name]
        sizes = {
            self.specs[name].shape[axis]
            for name, axis in batch.places
            if name in self.specs and axis < len(self.specs[name].shape)
        }
        places = (f"{name}.{axis}" for name, axis in batch.places)
        sizes.update(self.sizes[place] for place in places if place in self.sizes)
        return sizes.pop() if len(sizes) == 1 else None

    def shape_of(self, declared: DeclaredInput) -> tuple[int, ...] | None:
        spec = self.specs.get(declared.name)
        if spec is not None:
            return spec.shape
        if declared.dims is None:
            return None
        shape: list[int | None] = []
        for axis, dim in enumerate(declared.dims):
            size = self.size_of(declared, axis, dim)
            if size is None:
                name = dim_name(declared, axis, dim) or ""
                self.missing.setdefault(name, []).append((declared.name, axis))
            shape.append(size)
        return None if None in shape else tuple(shape)  # type: ignore[arg-type]  # no None is left

    def size_of(self, declared: DeclaredInput, axis: int, dim: Dim) -> int | None:
        batch = self.batch
        is_batch = batch is not None and (declared.name, axis) in batch.places
        if is_batch and (batch.name is None or dim is None):  # type: ignore[union-attr]  # by is_batch
            return self.batch_size
        if isinstance(dim, int):
            return dim
        name = dim_name(declared, axis, dim)
        if name in self.sizes:
            return self.sizes[name]
        return None if dim is None else evaluate(dim, self.sizes)

    def missing_dims(self) -> OpenSizesError:
        missing = {
            name: [f"{printable(place)}[{axis}]" for place, axis in places]
            for name, places in self.missing.items()
        }
        places = "; ".join(
            f"{printable(name)!r} (in {', '.join(found[:4])}{', ...' if len(found) > 4 else ''})"
            for name, found in missing.items()
        )
        several = len(missing) > 1
        return OpenSizesError(
            f"{self.model} has {'dimensions' if several else 'a dimension'} without a size: "
            f"{places}.",
            Remedy("Give {dims}", dims=[*map(printable, missing)]),
        )

    def no_batch(self) -> BindingError:
        shapes = ", ".join(f"{printable(i.name)} ({_declared_shape(i)})" for i in self.inputs[:4])
        return BindingError(
            f"{self.model} has no batch dimension that its inputs share: {shapes or 'no inputs'}.",
            Remedy("Leave {batch} out, or give {inputs}.", inputs="name:dtype:shape"),
        )

    def check_shape(self, name: str, shape: tuple[int, ...] | None) -> None:
        what = f"the input {printable(name)!r} of {self.model}"
        if shape is None:
            return
        if any(dim < 0 for dim in shape):
            raise BindingError(
                f"{what} has a negative dimension: {format_shape(shape)}.",
                Remedy(
                    "Export the model with a named dimension, or give {inputs}.",
                    inputs="name:dtype:shape",
                ),
            )
        if prod(shape) > MAX_ELEMENTS:
            raise BindingError(
                f"{what} would have more than {MAX_ELEMENTS:,} elements ({format_shape(shape)}). "
                "Is a dimension mistyped?"
            )


def dim_name(declared: DeclaredInput, axis: int, dim: Dim) -> str | None:
    """Return the name of a dimension for the user. A nameless one is called by its place, `x.1`."""
    if isinstance(dim, int):
        return None
    return dim if dim is not None else f"{declared.name}.{axis}"


def _declared_shape(declared: DeclaredInput) -> str:
    if declared.dims is None:
        return "of unknown rank"
    return "x".join("?" if d is None else printable(str(d)) for d in declared.dims) or "scalar"


def _nearest(name: str, known: Sequence[str]) -> str:
    if not known:
        return " It has none."
    named = shorten_list([*map(printable, known)], _MOST_NAMED)
    return f"{suggestion(name, known)} There {'is' if len(known) == 1 else 'are'}: {named}."


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def _evaluate_node(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate_node(node.left, sizes), _evaluate_node(node.right, sizes)
        return _OPERATORS[type(node.op)](left, right)
    raise ValueError(type(node).__name__)
