"""Return the options of a command that runs the same case, quoted for a shell."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.text.words import shell_word


def case_options(case: Case) -> list[str]:
    """Return options such as `--batch 1 --cores 2`, `--dim seq=64`, and those of a generation."""
    return [*size_options(case), *length_options([case])]


def size_options(case: Case) -> list[str]:
    dims = [f"--dim {shell_word(f'{name}={size}')}" for name, size in case.sizes.items()]
    return [f"--batch {case.batch_size} --cores {case.cores}", *dims]


def length_options(cases: Sequence[Case]) -> list[str]:
    """Return the options `--prompt` and `--generate` that make the phases of these cases."""
    phases = [case.phase for case in cases if case.phase is not None]
    prompts = dict.fromkeys(str(each.prompt) for each in phases if each.prompt)
    counts = dict.fromkeys(str(each.generate) for each in phases if each.phase is Phase.STEP)
    options = (("--prompt", prompts), ("--generate", counts))
    return [f"{option} {','.join(values)}" for option, values in options if values]


def engine_options(*names: str) -> list[str]:
    """Return the option for each of these engines that is not the default."""
    return [f"--engine {shell_word(name)}" for name in names if name != DEFAULT_ENGINE]
