"""Name the files in one report, with as many folders as are needed to distinguish them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.records import ModelFacts


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
