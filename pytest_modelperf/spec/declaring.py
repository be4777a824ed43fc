"""The spec of a model that a table, a marker or a call of the fixture declares."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS, THE_MODEL
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.kinds import read
from pytest_modelperf.spec.setting import Place
from pytest_modelperf.spec.sized_case import is_function
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

# The settings that a marker and a call take, by their words.
CASE_WORDS = {each.word: each for each in CASE_SETTINGS if each.stands_in(Place.CALL)}


def spec_by_table(spec: CaseSpec | None, model: Path, root: Path) -> CaseSpec:
    """The spec of a model by its table; without a table, one case with the defaults."""
    if spec is None:
        return CaseSpec(model=model)
    file, workload = spec.input_file, spec.workload
    return replace(
        spec,
        model=model,
        input_file=None if file is None else root / file,
        workload=None if workload is None else workload.located(root.joinpath),
    )


def read_spec(
    words: Mapping[str, object],
    where: str,
    find: Callable[[str], Path],
    known: Sequence[str] = tuple(CASE_WORDS),
) -> CaseSpec:
    """The spec of a model by a marker or a call; a UsageError begins with `where`.

    `find` makes a path of one that is relative. `known` are the words that an error lists.
    """
    for word in words:
        if word not in CASE_WORDS:
            raise UsageError(
                f"{where}: there is no argument {printable(word)!r}.{suggestion(word, known)} "
                f"There are: {', '.join(known)}."
            )
    spec = CaseSpec(
        **{
            CASE_WORDS[word].field: read(CASE_WORDS[word], as_written(value), f"{where}: {word}")
            for word, value in words.items()
            if value is not None
        }
    )
    model = spec.model
    if model is None:
        raise UsageError(f"{where}: which model? Give {THE_MODEL.word}='model.onnx'.")
    if isinstance(model, str | os.PathLike) and not is_function(spec, model):
        spec = replace(spec, model=find(os.fspath(model)))
    if spec.input_file is not None:
        spec = replace(spec, input_file=find(os.fspath(spec.input_file)))
    if spec.workload is not None:
        spec = replace(spec, workload=spec.workload.located(find))
    return spec


def as_written(value: object) -> object:
    """The value as a table would have it: sequences as lists, numbers of numpy as Python's."""
    if isinstance(value, tuple | range | list):
        return [as_written(each) for each in value]
    if isinstance(value, Mapping):
        return {key: as_written(inner) for key, inner in value.items()}
    # An array or a number of numpy, or a tensor.
    to_list: Callable[[], object] | None = getattr(value, "tolist", None)
    return value if to_list is None else to_list()
