"""What models are called beside each other: by their files, and by the folders that differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pytest_modelperf.records import ModelFacts


def name_models(models: Sequence[ModelFacts]) -> tuple[str, ...]:
    """A name for each: the shortest end of its path that no other path ends with.

    `encoder.onnx`, or `old/model.onnx` and `new/model.onnx`.
    """
    paths = [PurePath(model.path or model.name).parts for model in models]
    names = []
    for model, path in zip(models, paths, strict=True):
        others = {other for other in paths if other != path}
        lengths = range(1, len(path) + 1)
        taken = (n for n in lengths if all(other[-n:] != path[-n:] for other in others))
        length = next(taken, len(path))
        names.append(model.name if length <= 1 else "/".join(path[-length:]).replace("//", "/"))
    return tuple(names)
