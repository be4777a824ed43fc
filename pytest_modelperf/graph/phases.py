"""The phases of a generation: the whole prompt in one inference, then one token at a time."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from pytest_modelperf.files.documents import Count


class Phase(enum.Enum):
    """A part of a generation, measured as a case of its own."""

    PREFILL = "prefill"
    STEP = "step"


class GenerationPhase(Struct, frozen=True):
    """A phase of a generation of `generate` tokens after a prompt of `prompt` tokens.

    A prefill is one inference on the prompt. A step is one inference for each generated token, and
    the first step has a past as long as the prompt.
    """

    phase: Phase
    prompt: Count
    generate: Count

    @property
    def id(self) -> str:
        """The part of a case's id that names the phase: `prompt128-generate64-step`."""
        generate = f"-generate{self.generate}" if self.phase is Phase.STEP else ""
        return f"prompt{self.prompt}{generate}-{self.phase.value}"

    @property
    def steps(self) -> int:
        """The number of inferences that differ in their length."""
        return self.generate if self.phase is Phase.STEP else 1

    @property
    def middle(self) -> int:
        """The step that represents all of them in a static profile."""
        return self.steps // 2

    def before(self, step: int, new: int) -> int:
        """Return the number of tokens before a step, if each step takes `new` tokens."""
        return self.prompt + step * new if self.phase is Phase.STEP else 0


class Generation(Struct, frozen=True):
    """A generation to profile. `state` maps inputs to outputs, for the pairs that the user names.

    A prompt of 0 has no prefill, and `generate=0` has no steps.
    """

    prompt: int
    generate: int
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[GenerationPhase, ...]:
        wanted = ((Phase.PREFILL, self.prompt), (Phase.STEP, self.generate))
        return tuple(
            GenerationPhase(phase, self.prompt, self.generate) for phase, tokens in wanted if tokens
        )


def phases_of_all(
    generations: Sequence[Generation], wanted: Sequence[Phase]
) -> tuple[tuple[Generation, GenerationPhase], ...]:
    """Return the wanted phases of all generations, with one prefill for each prompt."""
    # The prefill is that of the longest generation, which a cache of a fixed size must hold.
    longest = {each.prompt: each for each in sorted(generations, key=lambda each: each.generate)}
    return tuple(
        (each, phase)
        for each in generations
        for phase in each.phases
        if phase.phase in wanted
        and (phase.phase is not Phase.PREFILL or longest[each.prompt] == each)
    )
