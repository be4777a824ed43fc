"""Models that are collected as tests: `models/encoder.onnx::b1-c2`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError, ModelError, ModelPerfError
from pytest_modelperf.spec.declaring import spec_by_table
from pytest_modelperf.spec.sized_case import SizedCase, cases_of
from pytest_modelperf.testing.current_run import run_of
from pytest_modelperf.testing.markers import path_below, read_mark_budgets
from pytest_modelperf.testing.pytest_internals import lack_of_memory_told
from pytest_modelperf.testing.run import PerfFailure, Run, case_of
from pytest_modelperf.testing.startup import ALL_CASES, SWITCHED_OFF, named_tests
from pytest_modelperf.testing.wording import in_python, in_table
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from _pytest.nodes import Node  # pytest has no public name for it

# A model has no lines, but pytest needs one for each test that a marker skips.
_LINE = 0


class OnnxFile(pytest.File):
    """A model, whose tests are its cases."""

    @classmethod
    def from_parent(cls, parent: pytest.Collector, *, path: Path, **kwargs: Any) -> OnnxFile:  # type: ignore[override]  # noqa: ANN401  # pytest's own
        """Make the collector of a model. Line breaks are escaped, because pytest prints its id."""
        made: OnnxFile = super().from_parent(parent, path=path, **kwargs)
        nodeid = printable(made.nodeid)
        if nodeid == made.nodeid:
            return made
        return super().from_parent(parent, path=path, **{**kwargs, "nodeid": nodeid})

    def collect(self) -> Iterator[pytest.Item]:
        run = run_of(self.config)
        if run is None:
            named = [name for path, name in named_tests(self.config) if path == self.path]
            for name in dict.fromkeys(name or ALL_CASES for name in named):
                yield SkippedItem.from_parent(self, name=name)
            return
        root, spec = run.settings.root, None
        path = path_below(self.path, root)
        if path is None:
            yield UnreadableItem.from_parent(
                self, name=ALL_CASES, message=_lies_outside(self.path, root)
            )
            return
        try:
            spec = run.settings.spec_for(path)
            with lack_of_memory_told():
                cases = cases_of(spec_by_table(spec, self.path, root))
        except ModelPerfError as error:
            message = in_table(error, path, has_table=spec is not None)
            message = message.replace(printable(str(self.path)), printable(path))
            if not isinstance(error, ModelError | MeasureError):
                raise self.CollectError(message) from None
            yield UnreadableItem.from_parent(self, name=ALL_CASES, message=message)
            return
        for case in cases:
            yield OnnxItem.from_parent(self, name=printable(case.name), case=case)


class _ModelItem(pytest.Item):
    """A test of a model, which may be in a package but does not need its code."""

    def listchain(self) -> list[Node]:
        """Return its collectors without packages, which pytest would import."""
        chain = super().listchain()
        if self.config.getoption("collectonly"):
            # Here, pytest only shows the tree of the tests.
            return chain
        return [node for node in chain if not isinstance(node, pytest.Package)]

    def reportinfo(self) -> tuple[Path, int, str]:
        # With the space, pytest does not take the text for the end of the id, in which it would
        # replace dots by colons.
        path = _shown(self.path)
        return path, _LINE, f"{path.name}::{self.name} "


class OnnxItem(_ModelItem):
    """One case of a model, judged by its baseline and its budgets."""

    def __init__(self, *, case: SizedCase, **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self.case = case

    def read_late_budgets(self) -> None:
        """Add the budgets of markers from a conftest. They override those of the table."""
        late = read_mark_budgets(self)
        if late:
            metrics = {budget.figure.metric for budget in late}
            spec = self.case.spec
            kept = [each for each in spec.budgets if each.figure.metric not in metrics]
            self.case = replace(self.case, spec=replace(spec, budgets=(*kept, *late)))

    @property
    def table_path(self) -> str:
        run = run_of(self.config)
        inner = None if run is None else path_below(self.path, run.settings.root)
        return inner or self.path.name

    def runtest(self) -> None:
        run = run_of(self.config)
        if run is None:
            raise RuntimeError("models are collected as cases only with --modelperf")
        case = case_of(self) or self.case
        try:
            check_item(run, self, case)
        except PerfFailure as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        except ModelPerfError as error:
            path = self.table_path
            has_table = run.settings.spec_for(path) is not None
            raise _failed(run, self, in_table(error, path, has_table=has_table)) from None


class SkippedItem(_ModelItem):
    """A placeholder for the cases of a model in a run that profiles none."""

    def runtest(self) -> None:
        pytest.skip(SWITCHED_OFF)

    def reportinfo(self) -> tuple[Path, int, str]:
        path = _shown(self.path)
        return path, _LINE, path.name


class UnreadableItem(_ModelItem):
    """The cases of a model that cannot be read: one failed test, so that other models still run."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self.message = message

    def runtest(self) -> None:
        run = run_of(self.config)
        if run is not None:
            run.note_failed_model(self, self.path, self.message)
        pytest.fail(self.message, pytrace=False)


def find_late_case(run: Run, item: pytest.Item) -> None:
    """Find a model that did not exist at collection. If this fails, so does the setup."""
    __tracebackhide__ = True
    case = case_of(item)
    if case is None or case.origin is None:
        return
    fixtures: Mapping[str, object] = getattr(item, "funcargs", {})
    try:
        run.find_case(item, case, fixtures)
    except ModelPerfError as error:
        if isinstance(item, OnnxItem):
            message = in_table(error, item.table_path, has_table=True)
        else:
            message = in_python(error)
        raise _failed(run, item, message) from None


def _failed(run: Run, item: pytest.Item, message: str) -> BaseException:
    case = case_of(item)
    if case is not None:
        run.note_failure(item, case, message)
    return pytest.fail.Exception(message, pytrace=False)


def check_item(run: Run, item: pytest.Item, case: SizedCase) -> None:
    """Check one case, and skip or fail the test if needed."""
    try:
        with lack_of_memory_told():
            checked = run.check(item, run.case_check(item, case))
    except ModelPerfError as error:
        if run.skips(error):
            raise pytest.skip.Exception(error.message) from None
        raise run.with_way_out(error, item) from None
    run.checked = checked.profile
    run.require_passed(checked.outcomes)


def _shown(path: Path) -> Path:
    """Return the path as pytest prints it in ids."""
    return Path(printable(str(path)))


def _lies_outside(path: Path, root: Path) -> str:
    return printable(
        f"{path} is not below {root}, the root of this run, so no table and no baseline can belong "
        "to it. Give a folder above it with --rootdir, or name it in a test, as in "
        f"@pytest.mark.perf_case(model={str(path)!r}, baseline='models/encoder.onnx')."
    )
