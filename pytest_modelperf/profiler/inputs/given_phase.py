"""The inputs that a user gives for a generation, divided among its inferences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.phase_inputs import BoundPhase
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.graph.state import InputAxis
from pytest_modelperf.profiler.inputs.generation_steps import with_all_tokens
from pytest_modelperf.profiler.inputs.given import GivenInputs, call_for_inputs
from pytest_modelperf.profiler.inputs.made import Feed, input_types
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class PhaseGiven(Struct, frozen=True):
    """The given inputs of a phase: of the inference that stands for it, and of all its steps.

    Tokens of the steps follow one another. The state is that of the first step.
    """

    still: Mapping[str, Feed]
    steps: Mapping[str, Feed]


def divide_given(
    given: GivenInputs, bound: BoundModel, phase: BoundPhase, model: str
) -> PhaseGiven:
    """Divide the arrays; BindingError where one does not fit the lengths of the generation.

    Tokens are those of the prompt, or of the prompt and of all steps.
    """
    all_steps = with_all_tokens(phase.inputs_at(0), phase)
    arrays = dict(given.arrays)
    if given.function is not None:
        exact = phase.values_at(0)
        types = input_types(bound.graph, all_steps, model)
        types = {name: kind for name, kind in types.items() if name not in exact}
        arrays = dict(call_for_inputs(given.function, types, given.source))
    tokens = {each.name: each for each in phase.state.tokens if each.name in arrays}
    if given.function is None:
        for name, token in tokens.items():
            own = _own_tokens(arrays.pop(name), token, phase, given.source, model)
            if own is not None:
                arrays[name] = own
    past = {pair.past for pair in phase.state.pairs}
    is_step = phase.phase.phase is Phase.STEP
    steps = {name: array for name, array in arrays.items() if is_step or name not in past}
    plain = replace(given, function=None)
    # This also checks the shapes, by which tokens are divided next.
    of_steps = replace(plain, arrays=steps).feeds(bound.graph, all_steps, model)
    still = {name: array for name, array in steps.items() if name not in past}
    for name, token in tokens.items():
        if name in still:
            parts = np.split(still[name], phase.phase.steps, token.axis)
            still[name] = parts[phase.phase.middle]
    return PhaseGiven(
        replace(plain, arrays=still).feeds(bound.graph, bound.inputs, model), of_steps
    )


def _own_tokens(
    array: npt.NDArray[Any], token: InputAxis, phase: BoundPhase, source: str, model: str
) -> npt.NDArray[Any] | None:
    """The tokens of the phase; None where only those of the other phase are given."""
    asked, axis = phase.phase, token.axis
    new = phase.state.chunk or 1
    whole = asked.prompt + asked.generate * new
    length = array.shape[axis] if axis < array.ndim else 0
    if length not in {asked.prompt, whole}:
        raise BindingError(
            f"the input {printable(token.name)!r} in {source} has {count_of(length, 'token')} "
            f"along axis {axis}. A generation of {model} takes {asked.prompt:,}, those of the "
            f"prompt, or {whole:,}, those of the prompt and of all steps: give one of these."
        )
    if asked.phase is Phase.PREFILL:
        return np.take(array, range(asked.prompt), axis)
    return None if length != whole else np.take(array, range(asked.prompt, whole), axis)
