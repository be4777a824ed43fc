"""The models that a run collects: models in tables, also made or fetched ones, and found files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import AbsentFileError, ModelPerfError
from pytest_modelperf.files.documents import PYPROJECT
from pytest_modelperf.spec.declaring import spec_by_table
from pytest_modelperf.spec.sized_case import cases_of
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.current_run import run_of
from pytest_modelperf.testing.ending import KnownTests
from pytest_modelperf.testing.items import OnnxFile, OnnxItem, UnreadableItem
from pytest_modelperf.testing.startup import ALL_CASES, SUFFIXES, named_tests, split_argument
from pytest_modelperf.testing.wording import in_table
from pytest_modelperf.text.escaping import printable


class ModelCollection:
    """The plugin that makes pytest collect models, and adds to `known` what pytest ignores."""

    def __init__(self, config: pytest.Config, settings: RunSettings, known: KnownTests) -> None:
        self.config = config
        self.settings = settings
        self.known = known
        # `reached` has the models of tables and the folders above them. `opened` has the ones among
        # these that pytest would skip.
        self.reached: set[Path] = set()
        self.opened: set[Path] = set()
        # The folders that pytest collects in place of models whose paths it cannot parse.
        self.detours: set[Path] = set()
        self.typed: tuple[tuple[Path, str], ...] = ()

    def add_models(self) -> None:
        """Add the models of the tables to the arguments, unless tests were named."""
        if self._are_tests_named:
            return
        if self.config.invocation_params.dir != self.config.rootpath:
            return
        named = {path for path, _ in named_tests(self.config)}
        skipped = self.config.getini("norecursedirs")
        is_ignored = self._ignored_by_pytest(skipped)
        self._add_tables(named)
        for path in find_models(self.settings, skipped):
            if is_ignored(path):
                below = [each for each in path.parents if self.settings.root in each.parents]
                if not any(map(_is_environment, below)):
                    # Its baselines may be in use.
                    self.known.deselected += 1
                    self.known.left_out.add(path.relative_to(self.settings.root).as_posix())
                continue
            # pytest 8 collects nothing else of a named folder if a file in it is named too.
            if named.isdisjoint((path, *path.parents)):
                # The path is relative, so that the folders above the root may have any name.
                inner = path.relative_to(self.settings.root).as_posix()
                self.config.args.append(f"{os.curdir}/{inner}")
            self.reached |= {path, *path.parents}
        self.opened = {
            path
            for path in self.reached
            if self.settings.root in path.parents and _has_name_of(path, skipped)
        }

    def _add_tables(self, named: Collection[Path]) -> None:
        file = self.settings.root / PYPROJECT
        if self.has_late_tables and file.is_file() and not {file, *file.parents} & set(named):
            self.config.args.append(f"{os.curdir}/{PYPROJECT}")

    @property
    def _are_tests_named(self) -> bool:
        return self.config.args_source is pytest.Config.ArgsSource.ARGS

    @cached_property
    def absent(self) -> frozenset[str]:
        """The tables that match no file, although their models are files."""
        skipped = self.config.getini("norecursedirs")
        return frozenset(absent_tables(self.settings, skipped))

    @property
    def has_late_tables(self) -> bool:
        """Whether a table has a model that is made, fetched or absent."""
        return bool(self.absent) or any(
            spec.origin is not None for _, spec in self.settings.models.items()
        )

    def _ignored_by_pytest(self, skipped: Sequence[str]) -> Callable[[Path], bool]:
        """Return a function that says whether pytest ignores a path, apart from norecursedirs."""
        hook, root = self.config.hook.pytest_ignore_collect, self.settings.root

        @cache
        def is_ignored(path: Path) -> bool:
            if root not in path.parents:
                return False
            if is_ignored(path.parent):
                return True
            is_skipped = _has_name_of(path, skipped)
            return not is_skipped and bool(hook(collection_path=path, config=self.config))

        return is_ignored

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Make pytest collect the folder of a model whose path it cannot parse.

        Other models in that folder are dropped later, unless they are named. Each process does this
        itself, because pytest-xdist sends the original arguments to workers.
        """
        args, folder = self.config.args, self.config.invocation_params.dir
        self.typed = tuple(named_tests(self.config))
        self.config.args = []
        for arg, (path, _) in zip(args, self.typed, strict=True):
            if _can_be_given(split_argument(arg, folder)[0]) or not path.is_file():
                self.config.args.append(arg)
                continue
            inner = Path(os.path.relpath(path, folder))
            while not _can_be_given(str(inner)):
                inner = inner.parent
            self.config.args.append(str(inner))
            self.detours.add(Path(os.path.normpath(folder / inner)))
        try:
            return (yield)
        finally:
            self.config.args = args

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only the named tests among those in detours."""
        if not self.detours:
            return
        found = {
            index: [item for item in items if _is_meant(item, *named)]
            for index, named in enumerate(self.typed)
        }
        for index, (path, name) in enumerate(self.typed):
            if name and not found[index] and not _can_be_given(str(path)):
                raise pytest.UsageError(f"not found: {printable(f'{path}::{name}')}")
        kept = {item for meant in found.values() for item in meant}
        items[:] = [item for item in items if item in kept]

    def _is_on_detour(self, path: Path) -> bool:
        """Whether pytest reaches a path only by a detour, and the user did not name it."""
        if self.detours.isdisjoint(path.parents):
            return False
        if any(path == named or path in named.parents for named in self.named):
            return False
        return self.named.isdisjoint(path.parents)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect only the models of tables from folders that pytest would skip."""
        if self._is_on_detour(collection_path):
            return True
        if collection_path.name == PYPROJECT and collection_path.parent != self.settings.root:
            # pytest asks about every file that it finds.
            self.known.projects.add(str(collection_path))
        if self.opened.isdisjoint((collection_path, *collection_path.parents)):
            return None
        return collection_path not in self.reached

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_ignore_collect")
    def pytest_note_ignored(
        self, collection_path: Path
    ) -> Generator[None, bool | None, bool | None]:
        """Count ignored paths that may contain tests, as with `collect_ignore` and `--ignore`."""
        is_ignored = yield
        is_counted = is_ignored and not self._is_on_detour(collection_path)
        if is_counted and self._may_hold_tests(collection_path):
            self.known.deselected += 1
        return is_ignored

    def _may_hold_tests(self, path: Path) -> bool:
        if not self.opened.isdisjoint((path, *path.parents)):
            return False
        patterns = self.config.getini("python_files")
        if not path.is_dir():
            return any(map(path.match, patterns))
        skipped = ["__pycache__", *self.config.getini("norecursedirs")]
        if _has_name_of(path, skipped) or _is_environment(path):
            return False
        return any(True for pattern in patterns for _ in path.rglob(pattern))

    @pytest.hookimpl
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> OnnxFile | TablesFile | None:
        if file_path == self.settings.root / PYPROJECT and self.has_late_tables:
            # If the user names folders, absent models are reported only if the file is named.
            is_asked = not self._are_tests_named or file_path in self.named
            absent = self.absent if is_asked else ()
            return TablesFile.from_parent(parent, path=file_path, absent=absent)
        if file_path.suffix not in SUFFIXES:
            return None
        if file_path in self.named or self._is_configured(file_path):
            return OnnxFile.from_parent(parent, path=file_path)
        return None

    @cached_property
    def named(self) -> frozenset[Path]:
        """The files and folders of the command line, and the models that `add_models` added."""
        return frozenset(path for path, _ in named_tests(self.config))

    def _is_configured(self, path: Path) -> bool:
        root = self.settings.root
        if not path.is_relative_to(root):
            return False
        inner = path.relative_to(root).as_posix()
        is_twin = path.is_relative_to(self.settings.baseline_dir)
        models = self.settings.models
        own = models.own(inner)
        if own is not None:
            return own.origin is None
        return not is_twin and bool(models.globs_of(inner))

    def find_reached(self) -> Iterator[Path]:
        """Yield the models of the tables that this run collects, or may collect."""
        for pattern in self.settings.models:
            for path in self.settings.root.glob(pattern):
                if not self.named.isdisjoint((path, *path.parents)):
                    yield path


def find_models(settings: RunSettings, skipped: Sequence[str]) -> Iterator[Path]:
    """Yield the files that the tables name, without models that are made or fetched.

    A glob does not match twins. Folders whose names match `skipped` are skipped by pytest, so a
    glob matches files there only if it contains the name of the folder.
    """
    for pattern in settings.models:
        yield from _files_of(pattern, settings, skipped)


def absent_tables(settings: RunSettings, skipped: Sequence[str]) -> Iterator[str]:
    """Yield the tables that match no file, although their models are files."""
    for pattern, spec in settings.models.items():
        if spec.origin is None and not _files_of(pattern, settings, skipped):
            yield pattern


def _files_of(pattern: str, settings: RunSettings, skipped: Sequence[str]) -> Sequence[Path]:
    spec = settings.models.own(pattern)
    if spec is not None and spec.origin is not None:
        return ()
    return sorted(
        path
        for path in settings.root.glob(pattern)
        if path.is_file() and not _is_left_out(path, pattern, settings, skipped)
    )


def _can_be_given(path: str) -> bool:
    """Whether pytest can parse a path, without taking a part of it for the name of a test."""
    return "[" not in path and "::" not in path


def _is_meant(item: pytest.Item, path: Path, name: str) -> bool:
    if item.path != path:
        return path in item.path.parents
    if isinstance(item.parent, OnnxFile):
        return name in {"", item.name}
    inner = item.nodeid.partition("::")[2]
    return not name or inner == name or inner.startswith((f"{name}::", f"{name}["))


def _is_left_out(path: Path, pattern: str, settings: RunSettings, skipped: Sequence[str]) -> bool:
    inner = path.relative_to(settings.root)
    if inner.as_posix() == pattern:
        return False
    if path.is_relative_to(settings.baseline_dir):
        return True
    named = pattern.split("/")
    folders = [each for each in inner.parents if each.name and each.name not in named]
    return any(_has_name_of(each, skipped) for each in folders)


def _has_name_of(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.name, each) for each in patterns)


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file()


# -- tests of tables whose model is not an existing file: `pyproject.toml::encoder[b1-c1]`


class TablesFile(pytest.File):
    """A pyproject.toml, whose tests are the cases of models that are made or fetched.

    A table with an absent file gets one failing test, so that the other models still run.
    """

    def __init__(self, *, absent: Collection[str], **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self.absent = absent

    @classmethod
    def from_parent(  # type: ignore[override]  # pytest's own
        cls,
        parent: pytest.Collector,
        *,
        path: Path,
        absent: Collection[str],
        **kwargs: Any,  # noqa: ANN401
    ) -> TablesFile:
        made: TablesFile = super().from_parent(parent, path=path, absent=absent, **kwargs)
        return made

    def collect(self) -> Iterator[pytest.Item]:
        run = run_of(self.config)
        if run is None:
            return
        root = run.settings.root
        for table, spec in run.settings.models.items():
            if table in self.absent:
                message = str(absent_file(table, root))
                yield UnreadableItem.from_parent(
                    self, name=_name(table, ALL_CASES), message=message
                )
            if spec.origin is None:
                continue
            own = replace(spec_by_table(spec, root / table, root), model=None)
            try:
                cases = cases_of(replace(own, baseline=own.baseline or table))
            except ModelPerfError as error:
                message = in_table(error, table, has_table=True)
                yield UnreadableItem.from_parent(
                    self, name=_name(table, ALL_CASES), message=message
                )
                continue
            for case in cases:
                yield TableItem.from_parent(
                    self, name=_name(table, case.name), case=case, table=table
                )


class TableItem(OnnxItem):
    """One case of a model that is made or fetched when the test is set up."""

    def __init__(self, *, table: str, **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self._table = table

    @property
    def table_path(self) -> str:
        return self._table


def absent_file(pattern: str, root: Path) -> AbsentFileError:
    return AbsentFileError(
        f'[tool.modelperf.models."{printable(pattern)}"] names no file below '
        f"{printable(str(root))}: is the path right, and is the model there? A model that is made "
        "or fetched has make or url in its table."
    )


def _name(table: str, case: str) -> str:
    return printable(f"{table}[{case}]")
