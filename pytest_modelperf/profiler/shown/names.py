"""Short names of the models of a report, and the options that name a case, quoted for a shell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.text.words import shell_word


def name_models(models: Sequence[ModelFacts]) -> tuple[str, ...]:
    """Return a name for each model: `encoder.onnx`, or `old/model.onnx` and `new/model.onnx`."""
    # A report may show a Windows path, with backslashes, on any system.
    names = name_paths([(model.path or model.name).replace("\\", "/") for model in models])
    # A model that is not a file has a name of its own.
    pairs = zip(models, names, strict=True)
    return tuple(name if "/" in name else model.name for model, name in pairs)


def name_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return for each path its shortest end that no other path has."""
    ends = {path: tuple(_ends(path)) for path in paths}
    shared = Counter(end for found in ends.values() for end in found)
    return tuple(next((end for end in ends[path] if shared[end] == 1), path) for path in paths)


def _ends(path: str) -> Iterator[str]:
    """Return the ends of a path that begin with a whole name, the shortest first."""
    parts = path.split("/")
    return ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))


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
