"""The tables of models in `[tool.modelperf.models]`: what each declares, and the paths it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS, MAKE, URL
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.kinds import read
from pytest_modelperf.spec.readers import read_inner_path, read_keys
from pytest_modelperf.spec.setting import PREFIX, Place
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

# The key of the table that has a table for each model.
MODELS = "models"
# Characters that make a path a glob.
_WILD = frozenset("*?[")
# The settings in the table of a model, by their keys.
MODEL_KEYS = {each.table_key: each for each in CASE_SETTINGS if each.stands_in(Place.MODEL)}


class ModelTables:
    """The specs of models by the paths or globs of their tables, in the order of the file.

    Most of many tables name one model each: that is looked up.
    """

    def __init__(self, specs: Mapping[str, CaseSpec]) -> None:
        self._specs = specs
        self._globs = [pattern for pattern in self._specs if not _WILD.isdisjoint(pattern)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def items(self) -> Iterator[tuple[str, CaseSpec]]:
        return iter(self._specs.items())

    def own(self, path: str) -> CaseSpec | None:
        """The spec in the table with just that path, relative to the root and with slashes."""
        return self._specs.get(str(PurePosixPath(path)))

    def globs_of(self, path: str) -> dict[str, CaseSpec]:
        """The specs in the tables with a glob that matches the path."""
        return {glob: self._specs[glob] for glob in self._globs if matches(path, glob)}


def path_key(path: str) -> str:
    """The key of a table that names this path and no other one."""
    return "".join(f"[{char}]" if char in _WILD else char for char in path)


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern names a path below the root, by itself or as a glob."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        return False
    return str(pure) == pattern or _matches(pure.parts, pattern.split("/"))


def read_models(models: object, place: str) -> ModelTables:
    """The tables of all models; `place` names them, without the closing bracket."""
    if not isinstance(models, Mapping):
        raise UsageError(
            f"{place}] takes a table for each model, such as "
            f'[tool.{PREFIX}.{MODELS}."models/a.onnx"], not {shown(models)}.'
        )
    specs: dict[str, CaseSpec] = {}
    for written, table in models.items():
        where = f'{place}."{printable(written)}"]'
        pattern = _with_single_stars(read_inner_path(written, where))
        if pattern in specs:
            raise UsageError(
                f"{where}: there is another table of {printable(pattern)}: make them one."
            )
        specs[pattern] = spec = _read_spec(table, where)
        if spec.origin is not None and not _WILD.isdisjoint(pattern):
            raise UsageError(
                f"{where} is a pattern, and {MAKE.table_key} and {URL.table_key} are about one "
                "model: write its path."
            )
    return ModelTables(specs)


def _with_single_stars(pattern: str) -> str:
    """The pattern with one star for several in a name, where Python before 3.13 takes only one."""
    parts = pattern.split("/")
    return "/".join(part if part == "**" else re.sub(r"\*+", "*", part) for part in parts)


def _read_spec(table: object, where: str) -> CaseSpec:
    given = read_keys(table, MODEL_KEYS, where)
    if MAKE.table_key in given and URL.table_key in given:
        raise UsageError(
            f"{where} has {MAKE.table_key} and {URL.table_key}, and a model comes from one place: "
            "leave one out."
        )
    return CaseSpec(
        **{
            setting.field: read(setting, given[key], f"{where}: {key}")
            for key, setting in MODEL_KEYS.items()
            if key in given
        }
    )


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob, part by part; `**` is any number of parts."""
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
