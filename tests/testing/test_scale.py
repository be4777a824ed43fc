"""The work of a run for a model does not grow with their number, nor that for a layer with theirs.

Nothing is timed: functions that are called, files that are opened and what is put into sets are
counted at several sizes.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import pytest_modelperf
import pytest_modelperf.testing.formats
import pytest_modelperf.testing.hooks
from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.recording import record_counts
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing import layer_pairs
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.layer_pairs import AlignmentLimits, match_layers
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.graph.common_order import in_common
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.weights.program import pool
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.page_data import case_picture
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext
from pytest_modelperf.testing.checking import Checker
from pytest_modelperf.testing.outcomes import CaseOutcome, Source
from pytest_modelperf.testing.report import MAX_LINES
from pytest_modelperf.whatif.narrowing import dimensions
from pytest_modelperf.whatif.narrowing.dimensions import Dim
from pytest_modelperf.whatif.narrowing.narrow import select_channels
from tests.support.comparisons import OPEN, SLOWER
from tests.support.facts import make_provenance
from tests.support.known import known
from tests.support.profiles import measured_classifier
from tests.support.project import write_dense, write_table
from tests.support.rendered import render_summary
from tests.support.run_reports import many, run
from tests.support.small_models import ones, parse

PACKAGE = str(Path(pytest_modelperf.__file__).parent)
STATIC = ("--modelperf", "--modelperf-static-only")
REPORTS = (
    "--modelperf-json=run.json",
    "--modelperf-markdown=run.md",
    "--modelperf-benchmark-json=benchmark.json",
    "--junitxml=junit.xml",
)
# The sizes of each grow by a fixed number of models, so that fixed costs cancel out. All are
# below the number from which on a summary leaves cases out.
FEW, MANY = (2, 4, 6), (24, 48, 72)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder in which pytest finds our plugin and no other that is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def write_models(project: pytest.Pytester, count: int, width: int = 5) -> None:
    """Every second model has a table of its own, the others share one that is a glob."""
    for index in range(count):
        write_dense(project.path / f"models/m{index:02}.onnx", width)
    names = ["*", *(f"m{index:02}" for index in range(0, count, 2))]
    tables = (f'[tool.modelperf.models."models/{n}.onnx"]\nbatch_size = [1, 8]\n' for n in names)
    write_table(project, "\n".join(tables))


def record_few(project: pytest.Pytester) -> None:
    """Record baselines of all models that the smaller runs have."""
    write_models(project, FEW[-1])
    recorded = project.runpytest_inprocess("-q", *STATIC, "--modelperf-update-baseline")
    recorded.assert_outcomes(passed=2 * FEW[-1])


@contextmanager
def counting_calls(only: str | None = None) -> Iterator[list[int]]:
    """How many functions of the package, or of one name, are called; the list has one number."""
    calls = [0]

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_asked = event == "call" and only in {None, code.co_name}
        if is_asked and code.co_filename.startswith(PACKAGE):
            calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_at_sizes(
    sizes: Sequence[int], run_at: Callable[[int], object], only: str | None = None
) -> list[int]:
    found = []
    # The first run makes what later ones find.
    for count in (sizes[0], *sizes):
        with counting_calls(only) as calls:
            run_at(count)
        found.append(calls[0])
    return found[1:]


def assert_no_growth(calls: Sequence[int]) -> None:
    """Assert that the last models took the same number of calls as those before them.

    A little more is that of longer names and numbers.
    """
    first, second = (after - before for before, after in pairwise(calls))
    assert first > 0
    assert second <= 1.003 * first


@pytest.mark.slow
def test_collecting_a_model_takes_no_longer_with_more_models(project: pytest.Pytester) -> None:
    def collect(count: int) -> None:
        write_models(project, count)
        project.runpytest_inprocess("-q", *STATIC, "--collect-only")

    assert_no_growth(calls_at_sizes(MANY, collect))


def test_named_arguments_are_not_searched_for_each_model(project: pytest.Pytester) -> None:
    """For each name pytest itself asks about all that is in its folder."""
    write_models(project, FEW[-1])

    def collect(count: int) -> None:
        named = [f"models/m{index:02}.onnx" for index in range(count)]
        project.runpytest_inprocess("-q", *STATIC, "--collect-only", *named)

    assert_no_growth(calls_at_sizes(FEW, collect, only="named_tests"))


@pytest.mark.slow
def test_recording_a_model_takes_no_longer_with_more_models(project: pytest.Pytester) -> None:
    record_few(project)

    def record(count: int) -> None:
        write_models(project, count)
        project.runpytest_inprocess("-q", *STATIC, "--modelperf-update-baseline")

    assert_no_growth(calls_at_sizes(FEW, record))


@pytest.mark.slow
def test_checking_and_reporting_a_model_takes_no_longer_with_more_models(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_few(project)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")

    def check(count: int) -> None:
        # Each is larger than what was recorded, so all that a report can hold is in it.
        write_models(project, count, width=6)
        project.runpytest_inprocess("-q", *STATIC, *REPORTS)

    assert_no_growth(calls_at_sizes(FEW, check))


@pytest.fixture
def opened(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were opened, of eight of which one is larger than what was recorded."""
    write_models(project, 8)
    project.runpytest_inprocess("-q", *STATIC, "--modelperf-update-baseline")
    write_dense(project.path / "models/m03.onnx", 6)
    project.runpytest_inprocess("-q", *STATIC).assert_outcomes(passed=14, failed=2)
    names: list[str] = []
    plain_open = Path.open

    def noting_open(path: Path, *arguments: Any, **words: Any) -> Any:  # noqa: ANN401  # whatever it takes
        if path.suffix == ".onnx":
            names.append(path.name)
        return plain_open(path, *arguments, **words)

    monkeypatch.setattr(Path, "open", noting_open)
    return names


def test_one_case_by_its_id_opens_one_model(project: pytest.Pytester, opened: list[str]) -> None:
    project.runpytest_inprocess("-q", *STATIC, "models/m05.onnx::b8-c1").assert_outcomes(passed=1)
    assert set(opened) == {"m05.onnx"}


def test_last_failed_opens_no_other_model(project: pytest.Pytester, opened: list[str]) -> None:
    project.runpytest_inprocess("-q", *STATIC, "--lf").assert_outcomes(failed=2)
    assert set(opened) == {"m03.onnx"}


def test_collecting_a_model_opens_it_once_however_many_cases_it_has(
    project: pytest.Pytester, opened: list[str]
) -> None:
    chosen = project.runpytest_inprocess("-q", *STATIC, "--collect-only", "-k", "m05")
    chosen.assert_outcomes(deselected=14)
    assert sorted(opened) == [f"m{index:02}.onnx" for index in range(8)]


def test_a_twin_is_not_rebuilt_if_nothing_has_to_run(tmp_path: Path) -> None:
    """The model itself is stored as its twin: it has the structure, and cannot be rebuilt."""
    path = write_dense(tmp_path / "dense.onnx")
    file = open_model(path)
    request, extensions = ProfileRequest(), Extensions()
    model = Model.bind(file, next(request.bindings()), request, extensions)
    today = dt.datetime.now(dt.timezone.utc).date()
    counted = record_counts("dense", model, today, CasePlace(Case(1, 1), 1, 1, lambda _: None))
    packages = {"onnxruntime": version("onnxruntime")}
    recorded = replace(
        counted.cases[0],
        engine="onnxruntime",
        options={},
        provenance=make_provenance(date=today, packages=packages),
    )
    store = BaselineStore(tmp_path / "baselines")
    store.apply(plan_update(None, replace(counted, cases=(recorded,), twin=path.read_bytes())))
    check = CaseCheck(
        test="dense.onnx::b1-c1",
        case_id="b1-c1",
        source=Source(path="dense.onnx", line=None),
        model=path,
        baseline="dense",
        request=request,
        setup=Setup(),
        gate=Gate(),
    )
    for is_static, verdict in ((False, Verdict.UNCHANGED), (True, Verdict.PASSED)):
        checker = Checker(CheckContext(store, tmp_path, extensions, today, is_static=is_static))
        assert checker.check(check).outcome.verdict is verdict


def test_the_pools_that_weights_are_drawn_from_are_made_once_for_all_models() -> None:
    for is_even in (False, True):
        assert pool(3, is_even) is pool(3, is_even)
        assert not pool(3, is_even).flags.writeable
        assert pool(4, is_even)[0] != pool(3, is_even)[0]


def test_the_worst_of_many_failed_cases_have_a_line() -> None:
    outcomes: list[CaseOutcome] = [*many(1_000, OPEN), *many(30, SLOWER)]
    shown = render_summary(run(*outcomes), TextStyle(80))
    assert shown.count(" regressed  ") == 30
    assert shown.count("\nm") == MAX_LINES
    assert "990 inconclusive cases are not shown: -v lists them" in shown
    assert render_summary(run(*outcomes), TextStyle(80), verbosity=1).count("\nm") == 1_030
    # Even a short summary says that something is left out.
    assert "990 inconclusive" in render_summary(run(*outcomes), TextStyle(80), verbosity=-1)


def test_why_layers_keep_their_channels_is_found_in_one_walk_through_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [0]

    class CountingDeque(deque[Dim]):
        def popleft(self) -> Dim:
            steps[0] += 1
            return super().popleft()

    monkeypatch.setattr(dimensions, "deque", CountingDeque)
    found = []
    for count in (10, 20, 30):
        # Each product is added to its input, so that all are tied to the output.
        lines = [f"m{i} = MatMul(y{i}, w{i}) y{i + 1} = Add(y{i}, m{i})" for i in range(count)]
        text = f"g (float[1,4] y0) => (float[1,4] y{count}) {{ {' '.join(lines)} }}"
        model = parse(text, weights={f"w{i}": ones(4, 4) for i in range(count)})
        steps[0] = 0
        assert len(select_channels(load_model(open_model(model)), 0.5).kept) == count
        found.append(steps[0])
    assert_no_growth(found)


def layer(index: int, op_type: str, name: str = "", width: int = 4) -> StaticLayer:
    return StaticLayer(
        id=name or str(index),
        name=name,
        op_type=op_type,
        domain="",
        precision="float32",
        backward_macs=0,
        input_shape=(1, width),
        output_shape=(1, width),
        weight=None,
        macs=0,
        elementwise_ops=4,
        params=0,
        weight_bytes=0,
        output_bytes=16,
    )


def named(count: int) -> list[StaticLayer]:
    return [layer(index, "Relu", f"block{index}/act") for index in range(count)]


def unnamed(count: int, ops: Sequence[str] = ("MatMul", "Add", "Relu")) -> list[StaticLayer]:
    return [layer(index, ops[index % len(ops)]) for index in range(count)]


def test_the_rows_of_layers_are_made_once_for_the_picture_of_a_case() -> None:
    case = measured_classifier().cases[0]
    with counting_calls("layers") as calls:
        assert len(case_picture(case).boxes) > 2
    assert calls[0] == 1


def test_matching_a_layer_by_its_name_takes_no_longer_with_more_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = [0]

    class CountingSet(set[int]):
        def __init__(self, given: Iterable[int] = ()) -> None:
            super().__init__(given)
            put[0] += len(self)

    monkeypatch.setattr(layer_pairs, "set", CountingSet, raising=False)
    found = []
    for count in (100, 200):
        put[0] = 0
        assert len(match_layers(named(count), named(count))) == count
        found.append(put[0])
    assert 0 < found[1] <= 2 * found[0]


# Graphs are large from some layers on, and differ much from some differences on.
SMALL = AlignmentLimits(pairs=64, differences=14)


def test_in_a_large_graph_layers_between_and_behind_changes_keep_their_matches() -> None:
    before = unnamed(300)
    after = list(before)
    changed = range(5, 300, 60)
    for index in changed:
        after[index] = layer(index, "Softplus")
    expected = {index: index for index in range(300) if index not in changed}
    assert match_layers(before, after, SMALL) == expected
    before = unnamed(300)
    after = [*before[:100], layer(0, "Softmax"), *before[100:]]
    assert match_layers(before, after, SMALL) == {i: i + (i >= 100) for i in range(300)}


def test_in_a_large_graph_layers_of_other_sizes_are_described_by_their_operators() -> None:
    before = unnamed(300)
    after = [replace(each, output_shape=(1, 3), macs=1) for each in before]
    assert match_layers(before, after, SMALL) == {index: index for index in range(300)}


def test_if_nearly_everything_changed_equal_layers_are_paired_in_order() -> None:
    before, after = unnamed(60, ["MatMul", "Add"]), unnamed(60, ["Relu", "Add", "Relu", "Mul"])
    pairs = match_layers(before, after, SMALL)
    assert len(pairs) == 15
    assert all(before[old].op_type == after[new].op_type == "Add" for old, new in pairs.items())


def longest_in_common(old: Sequence[int], new: Sequence[int]) -> int:
    """How many equal elements two sequences have in the same order, by the plain recurrence."""
    row = [0] * (len(new) + 1)
    for left in old:
        above = row
        row = [0]
        for index, right in enumerate(new):
            row.append(above[index] + 1 if left == right else max(row[-1], above[index + 1]))
    return row[-1]


SEQUENCES = st.lists(st.integers(0, 3), max_size=14)


@given(SEQUENCES, SEQUENCES)
def test_the_common_layers_are_equal_in_order_and_the_longest_such_list(
    old: list[int], new: list[int]
) -> None:
    found = known(in_common(old, new, len(old) + len(new)))
    assert all(old[row] == new[column] for row, column in found)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))
    assert len(found) == longest_in_common(old, new)
