"""The spec of a model that a table, a marker or a call of the fixture declares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from pytest_modelperf.errors import AbsentFileError, UsageError
from pytest_modelperf.obtaining.origins import (
    ORT_SUFFIX,
    ModelOrigin,
    OriginKind,
    is_address,
    read_address,
)
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS, FIXTURE, MAKE, THE_MODEL, URL
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.kinds import read
from pytest_modelperf.spec.readers import read_function, read_inner_path, read_keys
from pytest_modelperf.spec.run_definitions import PREFIX, Place
from pytest_modelperf.spec.sized_case import is_function
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown, suggestion

# The arguments of a marker and a call, with their settings.
CASE_WORDS = {each.word: each for each in CASE_SETTINGS if each.stands_in(Place.CALL)}
# The arguments that name a model. A test gives exactly one of them.
MODEL_WORDS = (THE_MODEL.word, FIXTURE.word, MAKE.word)


def spec_by_table(spec: CaseSpec | None, model: Path, root: Path) -> CaseSpec:
    """Complete the spec from a model's table. Without a table, declare one default case."""
    if spec is None:
        return _with_file(CaseSpec(), model)
    file, workload = spec.input_file, spec.workload
    return replace(
        _with_file(spec, model),
        input_file=None if file is None else root / file,
        workload=None if workload is None else workload.located(root.joinpath),
    )


def read_spec(
    words: Mapping[str, object],
    place: str,
    find: Callable[[str], Path],
    known: Sequence[str] = tuple(CASE_WORDS),
    *,
    may_be_late: bool = False,
) -> CaseSpec:
    """Read the spec of a model from the arguments of a marker or a call.

    A UsageError begins with `place` and lists the arguments in `known`. `find` resolves a relative
    path. With `may_be_late`, a model that does not exist yet gets an origin.
    """
    for word in words:
        if word not in CASE_WORDS:
            raise UsageError(
                f"{place}: there is no argument {printable(word)!r}.{suggestion(word, known)} "
                f"There are: {', '.join(known)}."
            )
    named = [word for word in MODEL_WORDS if words.get(word) is not None]
    if len(named) > 1:
        raise UsageError(f"{place} names a model by {' and by '.join(named)}: leave one out.")
    spec = CaseSpec(
        **{
            CASE_WORDS[word].field: read(CASE_WORDS[word], as_written(value), f"{place}: {word}")
            for word, value in words.items()
            if value is not None
        }
    )
    if not named:
        raise UsageError(f"{place}: which model? Give {THE_MODEL.word}='model.onnx'.")
    spec = _with_model(spec, place, find, may_be_late=may_be_late)
    if spec.input_file is not None:
        spec = replace(spec, input_file=find(os.fspath(spec.input_file)))
    if spec.workload is not None:
        spec = replace(spec, workload=spec.workload.located(find))
    return spec


def _with_model(
    spec: CaseSpec, place: str, find: Callable[[str], Path], *, may_be_late: bool
) -> CaseSpec:
    model = spec.model
    if callable(model) and spec.baseline is not None and spec.engine != "callable":
        # A measured function cannot have a baseline, so this function returns a model.
        return replace(spec, model=None, origin=read_function(model, place))
    if not isinstance(model, str | os.PathLike) or is_function(spec, model):
        return spec
    text = os.fspath(model)
    if is_address(text):
        return replace(spec, model=None, origin=read_address(text, place))
    try:
        return _with_file(spec, find(text))
    except AbsentFileError:
        if not may_be_late:
            raise
        return replace(spec, model=None, origin=ModelOrigin(OriginKind.FILE, text))


def _with_file(spec: CaseSpec, model: Path) -> CaseSpec:
    """Set the model, or its path as the origin if no graph can be read from the file."""
    if model.suffix == ORT_SUFFIX:
        return replace(spec, model=None, origin=ModelOrigin(OriginKind.FILE, str(model)))
    return replace(spec, model=model)


def as_written(value: object) -> object:
    """Return the value as TOML would have it: lists for sequences, Python's numbers for NumPy's."""
    if isinstance(value, tuple | range | list):
        return [as_written(each) for each in value]
    if isinstance(value, Mapping):
        return {key: as_written(inner) for key, inner in value.items()}
    # A NumPy array or number, or a tensor.
    to_list: Callable[[], object] | None = getattr(value, "tolist", None)
    return value if to_list is None else to_list()


# -- the tables of models in `[tool.modelperf.models]`


# The key of the table that has a table for each model.
MODELS = "models"
# Characters that make a path a glob.
_WILD = frozenset("*?[")
# The settings in the table of a model, by their keys.
MODEL_KEYS = {each.table_key: each for each in CASE_SETTINGS if each.stands_in(Place.MODEL)}


class ModelTables:
    """The specs of models by the path or glob of their table, in the order of the file.

    Most tables name a single model, which is looked up by its path. Only globs are searched.
    """

    def __init__(self, specs: Mapping[str, CaseSpec]) -> None:
        self._specs = specs
        self._globs = [pattern for pattern in self._specs if not _WILD.isdisjoint(pattern)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def items(self) -> Iterator[tuple[str, CaseSpec]]:
        return iter(self._specs.items())

    def own(self, path: str) -> CaseSpec | None:
        """Return the spec in the table with exactly this path, relative to the root."""
        return self._specs.get(str(PurePosixPath(path)))

    def globs_of(self, path: str) -> dict[str, CaseSpec]:
        """Return the specs in the tables whose glob matches the path."""
        return {glob: self._specs[glob] for glob in self._globs if matches(path, glob)}


def path_key(path: str) -> str:
    """Return the table key that matches only this path, with its glob characters escaped."""
    return "".join(f"[{char}]" if char in _WILD else char for char in path)


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern, which may be a glob, matches a path below the root."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        return False
    return str(pure) == pattern or _matches(pure.parts, pattern.split("/"))


def read_models(models: object, tables: str) -> ModelTables:
    """Read the tables of all models. `tables` names them, without the closing bracket."""
    if not isinstance(models, Mapping):
        raise UsageError(
            f"{tables}] takes a table for each model, such as "
            f'[tool.{PREFIX}.{MODELS}."models/a.onnx"], not {shown(models)}.'
        )
    specs: dict[str, CaseSpec] = {}
    for written, table in models.items():
        place = f'{tables}."{printable(written)}"]'
        pattern = _with_single_stars(read_inner_path(written, place))
        if pattern in specs:
            raise UsageError(
                f"{place}: there is another table of {printable(pattern)}: make them one."
            )
        specs[pattern] = spec = _read_spec(table, place)
        if spec.origin is not None and not _WILD.isdisjoint(pattern):
            raise UsageError(
                f"{place} is a pattern, and {MAKE.table_key} and {URL.table_key} are about one "
                "model: write its path."
            )
    return ModelTables(specs)


def _with_single_stars(pattern: str) -> str:
    """Replace several stars in a name by one: Python before 3.13 takes only one."""
    parts = pattern.split("/")
    return "/".join(part if part == "**" else re.sub(r"\*+", "*", part) for part in parts)


def _read_spec(table: object, place: str) -> CaseSpec:
    given = read_keys(table, MODEL_KEYS, place)
    if MAKE.table_key in given and URL.table_key in given:
        raise UsageError(
            f"{place} has {MAKE.table_key} and {URL.table_key}, and a model comes from one place: "
            "leave one out."
        )
    return CaseSpec(
        **{
            setting.field: read(setting, given[key], f"{place}: {key}")
            for key, setting in MODEL_KEYS.items()
            if key in given
        }
    )


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a glob, part by part. `**` is any number of parts."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        # Several in a row match the same as one.
        rest = pattern[1:]
        if rest and rest[0] == "**":
            return _matches(path, rest)
        return any(_matches(path[start:], rest) for start in range(len(path) + 1))
    if not path or not fnmatchcase(path[0], pattern[0]):
        return False
    return _matches(path[1:], pattern[1:])
