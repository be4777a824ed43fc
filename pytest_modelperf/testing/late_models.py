"""Models that do not exist when tests are collected, and are found when a test is set up."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.obtaining.origins import ORT_SUFFIX, ModelOrigin, OriginKind, fetch_model
from pytest_modelperf.obtaining.values import file_of
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.spec.case_definitions import BASELINE, FIXTURE
from pytest_modelperf.spec.run_definitions import NO_CACHE
from pytest_modelperf.spec.sized_case import SizedCase, found_case
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.markers import FindModel, path_below
from pytest_modelperf.testing.pytest_internals import parameters_of
from pytest_modelperf.text.escaping import printable

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
        """Return the model of any origin except a fixture. `name` is for the file of a new one."""
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
