"""Reading the markers of a test, its class and its module: its cases and its budgets.

Models that do not exist when tests are collected are found when a test is set up.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, read_budgets
from pytest_modelperf.errors import AbsentFileError, UsageError
from pytest_modelperf.obtaining.origins import (
    ORT_SUFFIX,
    ModelOrigin,
    OriginKind,
    fetch_model,
    file_of,
)
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.spec.case_definitions import BASELINE, FIXTURE
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.spec.declaring import MODEL_WORDS, as_written, read_spec
from pytest_modelperf.spec.run_definitions import NO_CACHE
from pytest_modelperf.spec.sized_case import SizedCase, cases_of, found_case
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.pytest_internals import parameters_of
from pytest_modelperf.testing.startup import BUDGET, CASE, SUFFIX
from pytest_modelperf.text.escaping import printable

# The most other models that the error for a missing model names.
_MAX_NEAR = 5


class _Mark(Struct, frozen=True):
    """The arguments of one marker, and its level, which is 0 for the test itself."""

    depth: int
    words: Mapping[str, Any]

    @property
    def names_model(self) -> bool:
        return any(word in self.words for word in MODEL_WORDS)


def read_cases(node: pytest.Item, find: FindModel) -> tuple[SizedCase, ...]:
    """Read the cases of a test in the order of its markers. A UsageError names the test.

    Each `perf_case` with a model makes cases, but only those of the innermost level with a model
    count. A marker without a model applies to all cases, and an inner level overrides an outer one.
    """
    place = f"{printable(node.nodeid)}: @pytest.mark.{CASE}"
    marks = [_Mark(depth, _words(mark, place)) for depth, mark in _marks(node, CASE)]
    if not marks:
        return ()
    depth_of_models = min((m.depth for m in marks if m.names_model), default=None)
    if depth_of_models is None:
        raise UsageError(f"{place} names no model: give model='model.onnx'.")
    groups = [m for m in marks if m.names_model and m.depth == depth_of_models]
    shared = [m for m in marks if not m.names_model]
    budgets = read_mark_budgets(node)
    cases: list[SizedCase] = []
    for group in reversed(groups):
        words = _merge([group, *shared], place)
        # The model is not merged, because merging compares values, which an array does not allow.
        own = {word: group.words[word] for word in MODEL_WORDS if word in group.words}
        spec = read_spec({**words, **own}, place, find, may_be_late=True)
        cases += cases_of(replace(spec, budgets=budgets))
    return tuple(cases)


def read_mark_budgets(node: pytest.Item) -> tuple[Budget, ...]:
    """Read the budgets of a test. An inner level overrides an outer one."""
    place = f"{printable(node.nodeid)}: @pytest.mark.{BUDGET}"
    marks = []
    for depth, mark in _marks(node, BUDGET):
        if mark.args:
            raise UsageError(f"{place} takes budgets by name, such as latency_ms=12.")
        if not mark.kwargs:
            raise UsageError(f"{place} is empty: give a budget, such as latency_ms=12.")
        # Check each marker alone, so that an inner one does not hide a mistake in an outer one.
        written = {word: as_written(value) for word, value in mark.kwargs.items()}
        read_budgets(written, place)
        marks.append(_Mark(depth, written))
    return read_budgets(_merge(marks, place), place)


def use_fixtures_named(collector: pytest.Collector, function: object) -> None:
    """Make tests use the fixtures that the markers of a function, class or module name.

    pytest needs the parameters of these fixtures before it makes tests of a function.
    """
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return
    for name in _fixtures_named(collector.own_markers):
        collector.add_marker(pytest.mark.usefixtures(name))
    for name in _fixtures_named(_own_marks(function)):
        pytest.mark.usefixtures(name)(function)


def _own_marks(function: object) -> Sequence[pytest.Mark]:
    return [getattr(each, "mark", each) for each in getattr(function, "pytestmark", ())]


def _fixtures_named(marks: Sequence[pytest.Mark]) -> tuple[str, ...]:
    named = [mark.kwargs.get(FIXTURE.word) for mark in marks if mark.name == CASE]
    used = {name for mark in marks if mark.name == "usefixtures" for name in mark.args}
    return tuple(dict.fromkeys(n for n in named if isinstance(n, str) and n not in used))


def case_ids(cases: Iterable[SizedCase], place: str) -> list[str]:
    """Return the id of each case in its test, or raise UsageError if two are the same.

    If there are several models, the ids begin with their names.
    """
    cases = list(cases)
    names = [_name(case.model) for case in cases]
    has_several = len({id(case.spec) for case in cases}) > 1
    is_needed = len(set(names)) > 1
    ids = [
        f"{name}-{case.name}" if has_several and is_needed else case.name
        for name, case in zip(names, cases, strict=True)
    ]
    known: set[str] = set()
    for case_id in ids:
        if case_id in known:
            raise UsageError(
                f"{place}: two markers make the same case {printable(case_id)}: remove one, "
                "or give their models other names."
            )
        known.add(case_id)
    return ids


class FindModel:
    """The finder of models that a test names: next to the test, or else in the project's root."""

    def __init__(self, test_file: Path, root: Path, *, first: Path | None = None) -> None:
        folders = [test_file.parent, root] if first is None else [first, test_file.parent, root]
        self._folders = list(dict.fromkeys(folders))

    def __call__(self, text: str) -> Path:
        path = Path(text)
        if path.is_absolute():
            return path
        tried = [folder / path for folder in self._folders]
        # Unlike `Path.exists`, this raises no error for a text that cannot be a path.
        found = next((each for each in tried if os.path.exists(each)), None)  # noqa: PTH110
        if found is None:
            places = " or ".join(printable(str(folder)) for folder in self._folders)
            near = [each for folder in tried for each in sorted(folder.parent.glob("*.onnx"))]
            shown = ", ".join(printable(str(each)) for each in near[:_MAX_NEAR])
            hint = f" There are: {shown}." if near and path.suffix == SUFFIX else ""
            raise AbsentFileError(f"there is no file {printable(text)} in {places}.{hint}")
        return found


def path_below(path: Path, root: Path) -> str | None:
    """Return the path of a file as in table keys, or None if it is not below the root.

    The root may be a link while the file is given by its real path.
    """
    real = path.parent.resolve() / path.name
    for place, top in ((path, root), (real, root.resolve())):
        if place.is_relative_to(top):
            return place.relative_to(top).as_posix()
    return None


def _marks(node: pytest.Item, name: str) -> Iterator[tuple[int, pytest.Mark]]:
    chain = list(node.iter_parents())
    for owner, mark in node.iter_markers_with_node(name):
        yield chain.index(owner), mark


def _words(mark: pytest.Mark, place: str) -> Mapping[str, Any]:
    """Return the arguments of a marker by name. A positional argument is the model."""
    if len(mark.args) > 1:
        raise UsageError(f"{place} takes one argument without a name, the model.")
    words = {word: as_written(value) for word, value in mark.kwargs.items()}
    if mark.args:
        if "model" in words:
            raise UsageError(f"{place} names its model twice: name it once.")
        words["model"] = mark.args[0]
    if not words:
        raise UsageError(f"{place} is empty: give a model, such as model='model.onnx'.")
    return words


def _merge(marks: Iterable[_Mark], place: str) -> dict[str, Any]:
    """Merge the arguments of markers. Raise UsageError if two on the same level contradict."""
    merged: dict[str, Any] = {}
    depth_of: dict[str, int] = {}
    for mark in sorted(marks, key=lambda m: m.depth):
        for word, value in mark.words.items():
            known = depth_of.get(word)
            if known is None:
                merged[word], depth_of[word] = value, mark.depth
            elif known == mark.depth and merged[word] != value:
                raise UsageError(
                    f"{place} gives two values for {printable(word)}: {merged[word]!r} and "
                    f"{value!r}. Give one of them."
                )
    return merged


def _name(model: TestedModel | ModelOrigin) -> str:
    if isinstance(model, ModelOrigin):
        return model.short_name
    if isinstance(model, Path):
        return model.stem
    return str(getattr(model, "__name__", "model"))


_ORT_NOTE = (
    "the file has the graph that ONNX Runtime optimized as it was converted: the counts are of "
    "that graph, and the model before the conversion is not known. It runs without further "
    "optimizations, and load is that of the graph as ONNX"
)


class FoundModel(Struct, frozen=True):
    """The file of a model that did not exist, and a note for the reports, if any."""

    path: Path
    note: str | None = None


class FoundCase(Struct, frozen=True):
    """A case of a model that did not exist when its test was collected."""

    case: SizedCase
    note: str | None = None


class LateModels:
    """The models found by their origins. Each is made or fetched once in a session."""

    def __init__(self, config: pytest.Config, settings: RunSettings) -> None:
        self._config = config
        self._settings = settings
        self._found: dict[tuple[object, ...], FoundModel] = {}
        # The last value of each fixture with its file, so that the same value is written only once.
        self._values: dict[str, tuple[object, Path]] = {}
        worker: dict[str, str] = getattr(config, "workerinput", {})
        # All processes of pytest-xdist share this id.
        self._session = worker.get("testrunuid") or secrets.token_hex()

    def find_case(
        self, item: pytest.Item, case: SizedCase, fixtures: Mapping[str, object]
    ) -> FoundCase:
        """Return the case with the file of its model, or raise UsageError if that is not possible.

        An error of a fixture or a function is raised unchanged.
        """
        __tracebackhide__ = True
        origin = case.origin
        if origin is None:
            return FoundCase(case)
        baseline = case.spec.baseline or origin.baseline
        if origin.kind is not OriginKind.FIXTURE:
            if origin.kind is OriginKind.FUNCTION and baseline is None:
                raise UsageError(
                    f"a model that {printable(origin.name)} makes has no path: name its baseline, "
                    f"as in {BASELINE.word}='{printable(origin.short_name)}.onnx'."
                )
            found = self._find(item, origin, baseline or origin.short_name)
            baseline = baseline or path_below(found.path, self._settings.root)
            return self._case(case, found, baseline)
        if origin.name not in fixtures:
            raise UsageError(
                f"{FIXTURE.word} is for the marker perf_case: have the test take the fixture "
                f"{origin.name}, and give its value."
            )
        chosen = parameters_of(item, origin.name)
        if chosen:
            # Each parameter of the fixture makes another model.
            stem, dot, suffix = str(baseline).partition(".onnx")
            baseline = f"{stem}[{'-'.join(chosen)}]{dot}{suffix}"
        path = self._file_of_value(fixtures[origin.name], origin, baseline or origin.name)
        return self._case(case, FoundModel(path), baseline)

    def _case(self, case: SizedCase, found: FoundModel, baseline: str | None) -> FoundCase:
        """Return the case of a found model. A graph in ONNX Runtime's format runs as converted."""
        if found.path.suffix != ORT_SUFFIX:
            return FoundCase(found_case(case, found.path, baseline), found.note)
        engine, options = self._settings.engine_for(case.spec)
        if engine != DEFAULT_ENGINE:
            raise UsageError(
                f"{printable(found.path.name)} is in ONNX Runtime's own format, which {engine} "
                "does not read: give the ONNX model that it was made from."
            )
        # Imported here, like everything that measures.
        from pytest_modelperf.obtaining.making import AS_CONVERTED

        spec = replace(case.spec, engine_options={**AS_CONVERTED, **options})
        path = self._readable(found.path)
        notes = [*([] if found.note is None else [found.note]), _ORT_NOTE]
        return FoundCase(found_case(replace(case, spec=spec), path, baseline), "; ".join(notes))

    def _readable(self, path: Path) -> Path:
        if path.suffix != ORT_SUFFIX:
            return path
        key = (path, path.stat().st_mtime_ns)
        if key not in self._found:
            from pytest_modelperf.obtaining.making import write_as_onnx

            target = self._folder / secrets.token_hex(4)
            self._found[key] = FoundModel(write_as_onnx(path, target))
        return self._found[key].path

    def _find(self, item: pytest.Item, origin: ModelOrigin, name: str) -> FoundModel:
        """Return the model of any origin except a fixture. `name` names the file of a new model."""
        __tracebackhide__ = True
        if origin.kind is OriginKind.FILE:
            return FoundModel(FindModel(item.path, self._settings.root)(origin.name))
        key = (origin, name)
        if key not in self._found:
            is_fetched = origin.kind is OriginKind.URL
            self._found[key] = (
                FoundModel(fetch_model(origin)) if is_fetched else self._make(origin, name)
            )
        return self._found[key]

    def _make(self, origin: ModelOrigin, name: str) -> FoundModel:
        __tracebackhide__ = True
        from pytest_modelperf.obtaining.making import Making

        making = Making(
            root=self._settings.root, session=self._session, uses_kept=not self._settings.no_cache
        )
        made = making.make(origin, name)
        return FoundModel(made.path, _kept_note(origin) if made.is_kept else None)

    def _file_of_value(self, value: object, origin: ModelOrigin, name: str) -> Path:
        known, path = self._values.get(name, (None, None))
        if path is None or known is not value:
            stem = Path(name).stem
            path = file_of(value, str(origin), self._folder / secrets.token_hex(4), stem)
            self._values[name] = (value, path)
        return path

    @cached_property
    def _folder(self) -> Path:
        """A folder for models that are not files, until the session ends."""
        stack = ExitStack()
        self._config.add_cleanup(stack.close)
        return stack.enter_context(working_folder("models"))


def _kept_note(origin: ModelOrigin) -> str:
    return (
        f"the model is from an earlier run: all that {printable(str(origin))} read is unchanged. "
        f"{NO_CACHE.flag} makes it again"
    )
