"""The spec of a model that a table, a marker or a call of the fixture declares."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.errors import AbsentFileError, UsageError
from pytest_modelperf.obtaining.addresses import is_address, read_address
from pytest_modelperf.obtaining.records import ORT_SUFFIX, ModelOrigin, OriginKind
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS, FIXTURE, MAKE, THE_MODEL
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.kinds import read
from pytest_modelperf.spec.readers import read_function
from pytest_modelperf.spec.setting import Place
from pytest_modelperf.spec.sized_case import is_function
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

# The settings that a marker and a call take, by their words.
CASE_WORDS = {each.word: each for each in CASE_SETTINGS if each.stands_in(Place.CALL)}
# The words that name a model; each of them is enough.
MODEL_WORDS = (THE_MODEL.word, FIXTURE.word, MAKE.word)


def spec_by_table(spec: CaseSpec | None, model: Path, root: Path) -> CaseSpec:
    """The spec of a model by its table; without a table, one case with the defaults."""
    if spec is None:
        return _with_file(CaseSpec(), model)
    file = spec.input_file
    return replace(_with_file(spec, model), input_file=None if file is None else root / file)


def read_spec(
    words: Mapping[str, object],
    where: str,
    find: Callable[[str], Path],
    known: Sequence[str] = tuple(CASE_WORDS),
    *,
    may_be_late: bool = False,
) -> CaseSpec:
    """The spec of a model by a marker or a call; a UsageError begins with `where`.

    `find` makes a path of one that is relative. `known` are the words that an error lists. With
    `may_be_late`, a model that does not exist has an origin.
    """
    for word in words:
        if word not in CASE_WORDS:
            raise UsageError(
                f"{where}: there is no argument {printable(word)!r}.{suggestion(word, known)} "
                f"There are: {', '.join(known)}."
            )
    named = [word for word in MODEL_WORDS if words.get(word) is not None]
    if len(named) > 1:
        raise UsageError(f"{where} names a model by {' and by '.join(named)}: leave one out.")
    spec = CaseSpec(
        **{
            CASE_WORDS[word].field: read(CASE_WORDS[word], as_written(value), f"{where}: {word}")
            for word, value in words.items()
            if value is not None
        }
    )
    if not named:
        raise UsageError(f"{where}: which model? Give {THE_MODEL.word}='model.onnx'.")
    spec = _with_model(spec, where, find, may_be_late=may_be_late)
    if spec.input_file is not None:
        spec = replace(spec, input_file=find(os.fspath(spec.input_file)))
    return spec


def _with_model(
    spec: CaseSpec, where: str, find: Callable[[str], Path], *, may_be_late: bool
) -> CaseSpec:
    """The spec with the path of its model, or with the origin of one that is not there yet."""
    model = spec.model
    if callable(model) and spec.baseline is not None and spec.engine != "callable":
        # A function that is measured has no baseline, so this one returns a model.
        return replace(spec, model=None, origin=read_function(model, where))
    if not isinstance(model, str | os.PathLike) or is_function(spec, model):
        return spec
    text = os.fspath(model)
    if is_address(text):
        return replace(spec, model=None, origin=read_address(text, where))
    try:
        return _with_file(spec, find(text))
    except AbsentFileError:
        if not may_be_late:
            raise
        return replace(spec, model=None, origin=ModelOrigin(OriginKind.FILE, text))


def _with_file(spec: CaseSpec, model: Path) -> CaseSpec:
    """The spec with a model; one that no graph can be read from has its path as an origin."""
    if model.suffix == ORT_SUFFIX:
        return replace(spec, model=None, origin=ModelOrigin(OriginKind.FILE, str(model)))
    return replace(spec, model=model)


def as_written(value: object) -> object:
    """The value as a table would have it: sequences as lists, numbers of numpy as Python's."""
    if isinstance(value, tuple | range | list):
        return [as_written(each) for each in value]
    if isinstance(value, Mapping):
        return {key: as_written(inner) for key, inner in value.items()}
    # An array or a number of numpy, or a tensor.
    to_list: Callable[[], object] | None = getattr(value, "tolist", None)
    return value if to_list is None else to_list()
