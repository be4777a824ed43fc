"""Names for files in one report: with as many folders as it takes to tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.records import ModelFacts


def name_models(models: Sequence[ModelFacts]) -> tuple[str, ...]:
    """A name for each: `encoder.onnx`, or `old/model.onnx` and `new/model.onnx`."""
    # A path of Windows has backslashes, wherever it is shown.
    names = name_paths([(model.path or model.name).replace("\\", "/") for model in models])
    # A model that is no file has a name of its own.
    pairs = zip(models, names, strict=True)
    return tuple(name if "/" in name else model.name for model, name in pairs)


def name_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest end of each that no other path ends with."""
    ends = {path: tuple(_ends(path)) for path in paths}
    shared = Counter(end for found in ends.values() for end in found)
    return tuple(next((end for end in ends[path] if shared[end] == 1), path) for path in paths)


def _ends(path: str) -> Iterator[str]:
    """The ends that begin with a whole name, the shortest first."""
    parts = path.split("/")
    return ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))
