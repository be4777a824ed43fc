"""The inputs of a model in a phase of a generation, and their sizes at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, Remedy, UsageError
from pytest_modelperf.graph.binding import (
    Binding,
    BoundInputs,
    DeclaredInput,
    InputSpec,
    bind_inputs,
)
from pytest_modelperf.graph.phases import Generation, GenerationPhase, Phase
from pytest_modelperf.graph.state import State, find_state
from pytest_modelperf.graph.state_inputs import StateInputs, TokenSpan, state_inputs
from pytest_modelperf.text.escaping import printable


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
