"""The inputs of one inference: given values, the state, and those of a phase of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, Remedy, UsageError
from pytest_modelperf.graph.binding import (
    Binding,
    BoundInputs,
    DeclaredInput,
    InputSpec,
    bind_inputs,
    dim_name,
    evaluate,
    find_batch,
)
from pytest_modelperf.graph.state import Count, State, find_state, holds_length, time_axes
from pytest_modelperf.graph.structure import Generation, GenerationPhase, Phase, Shape
from pytest_modelperf.graph.weights.numbers import ML_TYPES, number_type
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import exact_number, format_shape
from pytest_modelperf.text.words import count_of


def require_fitting_values(spec: InputSpec, model: str) -> None:
    """Raise BindingError if the input's type cannot hold a given value."""
    for value in spec.value or ():
        if not _is_number_of(spec.dtype, value):
            raise BindingError(
                f"the value {exact_number(value)} of the input {printable(spec.name)!r} of "
                f"{model} is not a valid {spec.dtype}. Give another value."
            )


def _is_number_of(dtype: str, value: float) -> bool:
    number = number_type(dtype)
    if number is None:
        return True
    if number.is_float:
        # Some of the smaller floats have no infinity, or no NaN.
        return isfinite(value) or dtype not in ML_TYPES
    return float(value).is_integer() and number.lowest <= value <= number.highest


# The value for a hidden token in a mask that is added to scores. It fits into a float16.
_HIDDEN = -10_000.0


class StateInputs(Struct, frozen=True):
    """The inputs of one inference: sizes of dimensions, and inputs whose values are exact.

    `dims` has the dimensions that follow from the number of tokens, by their names in a binding.
    `values` are masks, positions, lengths and the branch. Tokens and caches are not here: like
    other inputs, they are drawn by the seed.
    """

    dims: Mapping[str, int]
    values: tuple[InputSpec, ...]


class TokenSpan(Struct, frozen=True):
    """The tokens of one inference: the number of earlier ones, and of new ones."""

    before: int
    new: int
    # The length of a static cache that the model leaves open: all tokens of a generation.
    capacity: int

    @property
    def total(self) -> int:
        return self.before + self.new


def state_inputs(
    state: State,
    inputs: Sequence[DeclaredInput],
    span: TokenSpan,
    *,
    batch_size: int,
    dims: Mapping[str, int] | None = None,
) -> StateInputs:
    """Return the inputs of the inference on these tokens. `dims` are sizes that the user gives.

    An input with a dimension that still has no size is left out: the error of a later binding names
    it. Raise BindingError if two inputs need one dimension at two sizes.
    """
    return _Maker(state, inputs, span, batch_size, dims or {}).make()


def require_equal_shapes(
    state: State,
    inputs: Mapping[str, tuple[int, ...] | None],
    outputs: Mapping[str, Shape | None],
    model: str,
) -> None:
    """Raise BindingError if an output outgrows its input, although both declare one length."""
    for pair in state.pairs:
        past, present = inputs.get(pair.past), outputs.get(pair.present)
        if pair.grows is None and past and present and None not in present and past != present:
            raise BindingError(
                f"the output {printable(pair.present)!r} of {model} is {format_shape(present)} "
                f"and the input {printable(pair.past)!r} is {format_shape(past)}, but it "
                "declares the same dimensions. Export the model with another name for the length "
                "of the output, such as past_length + length."
            )


class _Maker:
    def __init__(
        self,
        state: State,
        inputs: Sequence[DeclaredInput],
        span: TokenSpan,
        batch_size: int,
        given: Mapping[str, int],
    ) -> None:
        self.state, self.span, self.batch_size = state, span, batch_size
        self.declared = {declared.name: declared for declared in inputs}
        self.batch = find_batch(inputs)
        self.given = given
        self.dims: dict[str, int] = {}
        self.users: dict[str, str] = {}

    def make(self) -> StateInputs:
        span, state = self.span, self.state
        for token in state.tokens:
            self.set(token.name, token.axis, span.new)
        for pair in state.pairs:
            if pair.grows is not None:
                self.set(pair.past, pair.grows, span.before)
        for pair in state.pairs:
            if pair.grows is None:
                self.set_capacity(self.declared[pair.past])
        for mask in state.masks:
            self.set_missing(mask.name, mask.axis, self.seen)
        for name in state.positions:
            if self.declared[name].dims:
                self.set_missing(name, len(self.declared[name].dims or ()) - 1, span.new)
        values = [
            *(self.mask(mask.name, mask.axis) for mask in state.masks),
            *map(self.position, state.positions),
            *(self.filled(each.name, self.counted(each.counts)) for each in state.lengths),
            *(
                self.filled(pair.past, span.before)
                for pair in state.pairs
                if holds_length(self.declared[pair.past])
            ),
        ]
        if state.branch is not None:
            values.append(self.filled(state.branch, span.before > 0, "bool"))
        return StateInputs(self.dims, tuple(spec for spec in values if spec is not None))

    @property
    def seen(self) -> int:
        """The length of a mask: all tokens, or the whole of a cache that does not grow."""
        grows = any(pair.grows is not None for pair in self.state.pairs)
        is_static = not grows and any(
            len(self.declared[pair.past].dims or ()) > 3 for pair in self.state.pairs
        )
        return self.span.capacity if is_static else self.span.total

    def counted(self, counts: Count) -> int:
        span = self.span
        return {
            Count.BEFORE: span.before,
            Count.TOTAL: span.total,
            Count.LAST: span.total - 1,
            Count.NEW: span.new,
        }[counts]

    def set(self, name: str, axis: int, size: int) -> None:
        key = self.key(name, axis)
        if key is None:
            return
        other = self.dims.get(key, self.given.get(key))
        if other is not None and other != size:
            user = self.users.get(key)
            what = "is given as" if user is None else f"is, by the input {printable(user)!r},"
            raise BindingError(
                f"the dimension {printable(key)!r} of the input {printable(name)!r} has to be "
                f"{size} when the inference takes {self.span.new} tokens after {self.span.before} "
                f"others, but {what} {other}. "
                + (
                    "Leave its size out."
                    if user is None
                    else "Export the model with a name for each of the two lengths."
                )
            )
        self.dims[key] = size
        self.users.setdefault(key, name)

    def set_capacity(self, past: DeclaredInput) -> None:
        dims = past.dims or ()
        batch = {axis for axis in range(len(dims)) if self.is_batch(past.name, axis)}
        for axis in time_axes(dims, batch, named=True):
            self.set_missing(past.name, axis, self.span.capacity)

    def set_missing(self, name: str, axis: int, size: int) -> None:
        """Set a dimension like `set`, unless it already has a size or follows from others."""
        key = self.key(name, axis)
        if key is not None and self.size(name, axis) is None:
            self.set(name, axis, size)

    def key(self, name: str, axis: int) -> str | None:
        declared = self.declared[name]
        return dim_name(declared, axis, (declared.dims or ())[axis])

    def is_batch(self, name: str, axis: int) -> bool:
        return self.batch is not None and (name, axis) in self.batch.places

    def size(self, name: str, axis: int) -> int | None:
        if self.is_batch(name, axis):
            return self.batch_size
        dim = (self.declared[name].dims or ())[axis]
        if isinstance(dim, int):
            return dim
        sizes = {**self.given, **self.dims}
        found = sizes.get(dim or f"{name}.{axis}")
        return evaluate(dim, sizes) if found is None and dim is not None else found

    def shape(self, name: str) -> tuple[int, ...] | None:
        dims = self.declared[name].dims
        if dims is None:
            return None
        sizes = [self.size(name, axis) for axis in range(len(dims))]
        known = tuple(size for size in sizes if size is not None)
        return known if len(known) == len(sizes) else None

    def spec(
        self, name: str, dtype: str, shape: tuple[int, ...], values: Sequence[float]
    ) -> InputSpec:
        declared = self.declared[name].dtype or dtype
        short = tuple(values[:1]) if len(set(values)) == 1 else tuple(values)
        return InputSpec(name, declared, shape, short)

    def filled(self, name: str, value: float, dtype: str = "int64") -> InputSpec | None:
        shape = self.shape(name)
        return None if shape is None else self.spec(name, dtype, shape, (float(value),))

    def position(self, name: str) -> InputSpec | None:
        shape = self.shape(name)
        if shape is None:
            return None
        length = shape[-1] if shape else 1
        values = [float(self.span.before + place) for place in range(length)]
        return self.spec(name, "int64", shape, values * (prod(shape) // max(length, 1)))

    def mask(self, name: str, axis: int) -> InputSpec | None:
        """Return the mask, in which a new token with its own row sees the tokens up to itself."""
        shape = self.shape(name)
        if shape is None:
            return None
        span, length = self.span, shape[axis]
        if length < span.total and length != span.new:
            raise BindingError(
                f"the mask {printable(name)!r} has room for {count_of(length, 'token')}, but the "
                f"inference sees {span.total:,}. Ask for fewer tokens."
            )
        declared = self.declared[name].dtype or "int64"
        is_added = declared.startswith(("float", "bfloat")) and len(shape) > 2
        yes, no = (0.0, _HIDDEN) if is_added else (1.0, 0.0)
        # A mask of the new tokens alone has no entries for earlier ones.
        before = 0 if length == span.new else span.before
        rows = [before + span.new]
        if len(shape) > 2 and shape[axis - 1] == span.new:
            rows = [before + row + 1 for row in range(span.new)]
        elif len(shape) > 1:
            rows *= shape[axis - 1]
        values = [yes if place < visible else no for visible in rows for place in range(length)]
        return self.spec(name, "int64", shape, values * (prod(shape) // max(len(values), 1)))


class BoundPhase(Struct, frozen=True):
    """A model in a phase of a generation, with its state and its inputs by length."""

    state: State
    inputs: tuple[DeclaredInput, ...]
    phase: GenerationPhase
    binding: Binding
    batch_size: int
    model: str

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on each phase that the user requests and the model lacks."""
        own = self.phase
        phases = Generation(own.prompt, own.generate).phases
        return tuple(filter(None, (_missing(self.state, each, self.model) for each in phases)))

    @property
    def new_tokens(self) -> int:
        if self.phase.phase is Phase.PREFILL:
            return self.phase.prompt
        return self.state.chunk or 1

    def at_step(self, step: int | None = None) -> Binding:
        """Return the binding of a step's inference, by default of the binding's own step."""
        own = self.binding.step if step is None else step
        made = _made(self, self.phase.middle if own is None else own)
        return replace(
            self.binding,
            dims={**self.binding.dims, **made.dims},
            inputs=(*self.binding.inputs, *made.values),
        )

    @property
    def changing_axes(self) -> dict[str, tuple[int, ...]]:
        """The axes of each input whose size changes with the steps."""
        if self.phase.steps == 1:
            return {}
        first, second = self.inputs_at(0).shapes, self.inputs_at(1).shapes
        return {
            name: tuple(axis for axis, size in enumerate(shape) if size != other[axis])
            for name, shape in first.items()
            if shape is not None and (other := second[name]) is not None
        }

    def values_at(self, step: int) -> dict[str, InputSpec]:
        """Return the inputs of a step that have exact values: masks, positions, lengths."""
        return {spec.name: spec for spec in _made(self, step).values}

    def inputs_at(self, step: int) -> BoundInputs:
        return bind_inputs(self.inputs, self.at_step(step), self.model)


def bind_phase(
    inputs: Sequence[DeclaredInput], outputs: Sequence[DeclaredInput], binding: Binding, model: str
) -> BoundPhase | None:
    """Return the phase that a binding requests. Raise UsageError if the model lacks it."""
    if binding.phase is None:
        return None
    # Without generation, a given size of the tokens is that of the prompt, not of a window.
    dims = binding.dims if binding.phase.generate else None
    state = find_state(inputs, outputs, binding.state, model, dims)
    missing = _missing(state, binding.phase, model)
    if missing:
        raise UsageError(f"{missing}.")
    batch_size = binding.batch_size or 1
    phase = BoundPhase(state, tuple(inputs), binding.phase, binding, batch_size, model)
    made = _made(phase, 0)
    _require_free(phase, made)
    # The batch can also follow from a dimension or an input, and exact values have a batch.
    dims = {**binding.dims, **made.dims}
    found = bind_inputs(inputs, replace(binding, dims=dims), model)
    return replace(phase, batch_size=found.batch_size)


def phases_of_model(
    inputs: Sequence[DeclaredInput],
    outputs: Sequence[DeclaredInput],
    generation: Generation,
    model: str,
    dims: Mapping[str, int] | None = None,
) -> tuple[GenerationPhase, ...]:
    """Return the phases that a model has at the sizes that the user gives, or raise UsageError."""
    given = dims if generation.generate else None
    state = find_state(inputs, outputs, generation.state, model, given)
    missing = {phase: _missing(state, phase, model) for phase in generation.phases}
    found = tuple(phase for phase, reason in missing.items() if not reason)
    if not found:
        raise UsageError(f"{'; '.join(missing.values())}.")
    return found


def _missing(state: State, phase: GenerationPhase, model: str) -> str:
    if phase.phase is Phase.PREFILL and not state.has_prefill:
        if state.is_window:
            return (
                f"with the size that is given, each inference of {model} takes a window of "
                f"{state.chunk:,}, so it has no prefill: leave out prompt, or the size"
            )
        return (
            f"{model} takes {state.chunk} new token{'' if state.chunk == 1 else 's'} at a time, so "
            "it has no prefill: the exporter may have written that as a model of its own"
        )
    if phase.phase is Phase.STEP and not state.has_steps:
        return (
            f"{model} takes no state of an earlier inference, so it has no steps: the exporter "
            "may have written them as a model of its own"
        )
    return ""


def _made(phase: BoundPhase, step: int) -> StateInputs:
    asked, new = phase.phase, phase.new_tokens
    capacity = asked.prompt + asked.generate * (phase.state.chunk or 1)
    span = TokenSpan(asked.before(step, new), new, capacity)
    return state_inputs(
        phase.state, phase.inputs, span, batch_size=phase.batch_size, dims=phase.binding.dims
    )


def _require_free(phase: BoundPhase, made: StateInputs) -> None:
    own = {spec.name for spec in made.values} | {pair.past for pair in phase.state.pairs}
    own |= {each.name for each in phase.state.tokens}
    for spec in phase.binding.inputs:
        if spec.name in own:
            raise BindingError(
                f"the input {printable(spec.name)!r} of {phase.model} follows from the lengths of "
                "the prompt and of what is generated, as its size changes with each step.",
                Remedy("Leave it out of {inputs}."),
            )
