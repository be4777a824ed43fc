"""`perf_case` and `perf_budget`: the cases and the budgets that the markers of a test make."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent, indent
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import MeasureError
from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    assert_usage_error,
    between,
    collected,
    write_dense,
)

if TYPE_CHECKING:
    from pytest_modelperf.testing.case_check import CaseCheck

PASSES = "def test_it(): pass"


def collected_of(run: pytest.Pytester, source: str) -> list[str]:
    """The tests of one file without its name."""
    run.makepyfile(test_file=f"import pytest\n\n{dedent(source)}")
    return [test.removeprefix("test_file.py::") for test in collected(run, "test_file.py")]


def run_static(run: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    run.makepyfile(test_file=f"import pytest\n\n{dedent(source)}")
    return run.runpytest_inprocess(*STATIC, *arguments)


@pytest.mark.parametrize(
    ("marker", "ids"),
    [
        ('"dense.onnx"', ["b1-c1"]),
        (
            'model="dense.onnx", batch_size=[1, 8], cores=(1, 2)',
            ["b1-c1", "b1-c2", "b8-c1", "b8-c2"],
        ),
        ('model="dense.onnx", batch_size=None', ["b1-c1"]),
        ('pathlib.Path("dense.onnx"), batch_size=range(1, 4)', ["b1-c1", "b2-c1", "b3-c1"]),
        ('"linear.onnx", dims={"seq": [64, 128]}', ["b1-c1-seq64", "b1-c1-seq128"]),
        ('"linear.onnx", dims={"seq": 64}', ["b1-c1"]),
        # An empty cache is an input as others are.
        ('"linear.onnx", dims={"seq": [0, 64]}', ["b1-c1-seq0", "b1-c1-seq64"]),
        (
            '"linear.onnx", dims=[{"N": 2, "seq": 64}, {"N": 3, "seq": 1}]',
            ["b2-c1-N2-seq64", "b3-c1-N3-seq1"],
        ),
        ('"linear.onnx", inputs="x:f32:2x7x3"', ["b2-c1"]),
        ('pathlib.Path("dense.onnx").read_bytes(), baseline="dense"', ["b1-c1"]),
        ('"dense.onnx", engine="onnxruntime", max_seconds=1, tolerance="5 %"', ["b1-c1"]),
        ('"dense.onnx", batch_size=np.int64(2), cores=tuple(np.arange(1, 3))', ["b2-c1", "b2-c2"]),
        ('"dense.onnx", max_seconds=np.float32(1), tolerance=np.float32(0.5)', ["b1-c1"]),
        ('"dense.onnx", engine_options={"session.a": np.int64(1)}', ["b1-c1"]),
    ],
)
def test_a_marker_takes_what_a_table_takes(
    run: pytest.Pytester, marker: str, ids: Sequence[str]
) -> None:
    found = collected_of(
        run,
        "import pathlib\nimport numpy as np\n\n"
        f"@pytest.mark.perf_case({marker})\ndef test_it(): pass",
    )
    assert found == [f"test_it[{each}]" for each in ids]


@pytest.mark.parametrize(
    ("markers", "ids"),
    [
        pytest.param(
            ['model="other.onnx"', 'model="dense.onnx", batch_size=2'],
            ["other-b1-c1", "dense-b2-c1"],
            id="the cases of each model from top to bottom",
        ),
        pytest.param(
            ["cores=2", 'model="other.onnx"', 'model="dense.onnx"'],
            ["other-b1-c2", "dense-b1-c2"],
            id="a marker without a model holds for those with one",
        ),
        pytest.param(
            ["batch_size=np.array([1, 2])", '"dense.onnx", batch_size=np.array([1, 2])'],
            ["b1-c1", "b2-c1"],
            id="the same by arrays",
        ),
        pytest.param(
            ['model="dense.onnx", batch_size=1, cores=2', 'model="dense.onnx", batch_size=8'],
            ["b1-c2", "b8-c1"],
            id="the same model at other cases",
        ),
    ],
)
def test_stacked_markers_make_the_cases_of_a_test_together(
    run: pytest.Pytester, markers: Sequence[str], ids: Sequence[str]
) -> None:
    write_dense(run.path / "other.onnx")
    decorators = "\n".join(f"@pytest.mark.perf_case({marker})" for marker in markers)
    found = collected_of(run, f"import numpy as np\n\n{decorators}\ndef test_it(): pass")
    assert found == [f"test_it[{each}]" for each in ids]


def test_an_inner_marker_overrides_an_outer_one_by_argument_and_its_model_with_all_its_cases(
    run: pytest.Pytester,
) -> None:
    write_dense(run.path / "other.onnx")
    found = collected_of(
        run,
        """
        pytestmark = [pytest.mark.perf_case(model="dense.onnx", batch_size=2)]

        def test_module(): pass

        @pytest.mark.perf_case(model="other.onnx")
        def test_other(): pass

        @pytest.mark.perf_case(cores=2)
        class TestOfAClass:
            def test_class(self): pass

            @pytest.mark.perf_case(batch_size=4)
            def test_function(self): pass
        """,
    )
    assert found == [
        "test_module[b2-c1]",
        "test_other[b1-c1]",
        "TestOfAClass::test_class[b2-c2]",
        "TestOfAClass::test_function[b4-c2]",
    ]


def test_a_model_is_looked_for_next_to_the_test_and_then_below_the_root(
    run: pytest.Pytester,
) -> None:
    folder = run.mkdir("deeper")
    write_dense(folder / "dense.onnx", width=7)
    source = """
        import pytest

        @pytest.mark.perf_case(model={model!r})
        def test_it(modelperf):
            assert modelperf.profile.static.macs == {macs}
    """
    run.makepyfile(test_near=source.format(model="dense.onnx", macs=21))
    run.makepyfile(test_root=source.format(model="deeper/dense.onnx", macs=21))
    for name in ("test_near.py", "test_root.py"):
        (run.path / name).rename(folder / name)
    run.makepyfile(test_outer=source.format(model="dense.onnx", macs=15))
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=3)


def test_cases_and_other_parameters_are_combined(run: pytest.Pytester) -> None:
    found = collected_of(
        run,
        """
        @pytest.mark.perf_case(model="dense.onnx", batch_size=[1, 2])
        @pytest.mark.parametrize("word", ["a", "b"])
        def test_it(word): pass
        """,
    )
    assert sorted(found) == [
        "test_it[b1-c1-a]",
        "test_it[b1-c1-b]",
        "test_it[b2-c1-a]",
        "test_it[b2-c1-b]",
    ]


def test_other_fixtures_and_the_case_of_the_test_go_together(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        @pytest.fixture(params=[1, 2])
        def number(request):
            yield request.param

        @pytest.mark.perf_case(model="dense.onnx", batch_size=8)
        def test_it(number, modelperf, tmp_path):
            assert number in (1, 2)
            assert modelperf.profile.case.id == "b8-c1"

        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.usefixtures("number")
        def test_that_uses_them_by_name(): pass
        """,
    )
    result.assert_outcomes(passed=4)


def test_a_skipped_test_is_not_checked(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.perf_budget(macs=1)
        @pytest.mark.skip
        def test_skipped(): pass

        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.perf_budget(macs=1)
        @pytest.mark.xfail(strict=True)
        def test_expected(): pass
        """,
    )
    result.assert_outcomes(skipped=1, xfailed=1)


def test_a_skipped_test_may_name_a_model_that_is_not_there(run: pytest.Pytester) -> None:
    source = """
        from pathlib import Path

        @pytest.mark.skipif(not Path("exported.onnx").exists(), reason="not exported")
        @pytest.mark.perf_case(model="exported.onnx")
        def test_it(): pass

        @pytest.mark.perf_case(model="dense.onnx")
        def test_other(): pass
    """
    run_static(run, source, "--modelperf-update-baseline")
    result = run_static(run, source, "--modelperf-prune", "--modelperf-strict")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["note: nothing was pruned: *", "note: 1 test was skipped *"])
    (run.path / "dense.onnx").rename(run.path / "exported.onnx")
    run_static(run, source).assert_outcomes(passed=1, errors=1)


def test_the_body_runs_only_if_the_check_passes(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        @pytest.mark.perf_case(model="dense.onnx", batch_size=[1, 2])
        @pytest.mark.perf_budget(macs=15)
        def test_it(modelperf):
            print("the body of", modelperf.profile.case.id)
        """,
        "-s",
    )
    result.assert_outcomes(passed=1, failed=1)
    said = [line for line in result.outlines if "the body of" in line]
    assert len(said) == 1
    assert "the body of b1-c1" in said[0]


def test_a_body_that_fails_is_shown_as_any_other(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        @pytest.mark.perf_case(model="dense.onnx")
        def test_it():
            assert 1 == 2
        """,
    )
    assert_ended(result, ">*assert 1 == 2", "E*assert 1 == 2", failed=1)
    assert_says_no_internals(result)


def test_a_coroutine_is_left_to_the_plugin_that_runs_it(run: pytest.Pytester) -> None:
    run.makeconftest(
        """
        import asyncio
        import inspect
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                asyncio.run(pyfuncitem.obj())
                return True
        """
    )
    result = run_static(
        run,
        """
        ran = []

        @pytest.mark.perf_case(model="dense.onnx")
        async def test_it():
            ran.append(1)

        def test_ran():
            assert ran == [1]
        """,
    )
    result.assert_outcomes(passed=2)


def test_markers_of_a_test_case_are_refused_for_cases_and_kept_for_others(
    run: pytest.Pytester,
) -> None:
    source = """
        import unittest

        {marker}
        class TestOfTheOldKind(unittest.TestCase):
            def test_it(self):
                raise AssertionError
    """
    refused = run_static(run, source.format(marker='@pytest.mark.perf_case(model="dense.onnx")'))
    assert_usage_error(
        refused, "ERROR: test_file.py::TestOfTheOldKind::test_it: @pytest.mark.perf_case is for *"
    )
    # Without the option the case is skipped, as that of any other test is.
    run.runpytest_inprocess().assert_outcomes(skipped=1)
    run_static(run, source.format(marker="")).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("marker", "test"),
    [
        ("usefixtures('number')", "test_it(number)"),
        ('perf_case(model="dense.onnx")', "test_it(number)"),
        ('perf_case(model="dense.onnx")', "test_it(number, modelperf)"),
    ],
    ids=["no case", "a case", "a case and the fixture"],
)
def test_a_parameter_can_neither_make_nor_change_the_cases_of_a_test(
    run: pytest.Pytester, marker: str, test: str
) -> None:
    refused = run_static(
        run,
        f"""
        late = pytest.mark.perf_case(model="dense.onnx", batch_size=8)

        @pytest.mark.{marker}
        @pytest.mark.parametrize("number", [pytest.param(1, marks=late)])
        def {test}: pass
        """,
    )
    assert_usage_error(refused, "ERROR: test_file.py::test_it[[]*1]: *perf_case*no parameter *")


@pytest.mark.parametrize("skip", [False, True])
def test_a_conftest_cannot_change_the_cases_of_a_collected_model(
    run: pytest.Pytester, *, skip: bool
) -> None:
    run.makeconftest(
        f"""
        import pytest

        def pytest_itemcollected(item):
            item.add_marker(pytest.mark.perf_case(batch_size=8))
            if {skip}:
                item.add_marker(pytest.mark.skip)
        """
    )
    result = run.runpytest_inprocess(*STATIC, "dense.onnx")
    if skip:
        result.assert_outcomes(skipped=1)
    else:
        assert_usage_error(result, "ERROR: dense.onnx::b1-c1: *perf_case*or conftest *")


@pytest.mark.parametrize("options", [(), STATIC])
def test_markers_of_a_module_do_not_concern_its_doctests(
    run: pytest.Pytester, options: tuple[str, ...]
) -> None:
    run.makepyfile(
        '''
        """
        >>> 1 + 1
        2
        """

        import pytest

        pytestmark = pytest.mark.perf_case(model="dense.onnx")
        '''
    )
    assert_ended(run.runpytest_inprocess("--doctest-modules", *options), passed=1)


SKIPPED = """
@pytest.mark.skipif(True, reason="only on the large machine")
@pytest.mark.perf_case(model="dense.onnx")
def test_marked():
    pass


@pytest.mark.skip
def test_called(modelperf):
    pass


@pytest.mark.skip
def test_of_something_else():
    pass
"""


def test_a_skip_of_the_project_is_reported_by_a_strict_run_and_fails_it_alone(
    run: pytest.Pytester,
) -> None:
    note = (
        "note: 2 tests were skipped by the project itself, and not judged: "
        "test_file.py::test_called, test_file.py::test_marked[b1-c1]"
    )
    strict = assert_ended(run_static(run, SKIPPED, "--modelperf-strict"), skipped=3)
    assert note in " ".join(strict.stdout.str().split())
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    strict.stdout.fnmatch_lines(["error: no model was judged, *: skipped by the project itself: *"])
    judged = run_static(
        run,
        f"{SKIPPED}\ndef test_judged(modelperf): modelperf.check('dense.onnx')",
        "--modelperf-update-baseline",
        "--modelperf-strict",
    )
    assert judged.ret == pytest.ExitCode.OK
    assert note in " ".join(judged.stdout.str().split())
    assert "the project itself" not in run_static(run, SKIPPED).stdout.str()


def test_strict_markers_know_ours_and_the_list_says_what_they_take(run: pytest.Pytester) -> None:
    source = """
        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.perf_budget(macs=15)
        def test_it(): pass
    """
    run_static(run, source, "--strict-markers").assert_outcomes(passed=1)
    run.runpytest_inprocess("--strict-markers").assert_outcomes(skipped=1)
    result = run.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.perf_case(model, batch_size=1, *): run the test once for each case *",
            "@pytest.mark.perf_budget(latency_ms=..., *): what the cases of the test may cost",
        ]
    )


def test_budgets_of_outer_levels_hold_and_inner_ones_override_them(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        pytestmark = [
            pytest.mark.perf_case(model="dense.onnx"),
            pytest.mark.perf_budget(macs=14, params=14),
        ]

        @pytest.mark.perf_budget(macs="1k")
        def test_params(): pass

        @pytest.mark.perf_budget(macs=15, params=15)
        def test_none(): pass
        """,
    )
    assert_ended(result, "over budget: params 15, limit 14", failed=1, passed=1)
    result.stdout.no_fnmatch_line("*MACs 15, limit*")


def test_budgets_of_a_parameter_or_a_conftest_hold_too(run: pytest.Pytester) -> None:
    run.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                if "late" in item.name:
                    item.add_marker(pytest.mark.perf_budget(params=14))
        """
    )
    source = """
        budget = pytest.mark.perf_budget

        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.parametrize("number", [1, pytest.param(2, marks=budget({budget}=14))])
        def test_it(number): pass

        @pytest.mark.perf_case(model="dense.onnx")
        def test_late(): pass
    """
    result = run_static(run, source.format(budget="macs"))
    assert_ended(result, "over budget: MACs 15, limit 14", failed=2, passed=1)
    result.stdout.fnmatch_lines(["over budget: params 15, limit 14"])
    wrong = run_static(run, source.format(budget="mcs"))
    assert_usage_error(wrong, "ERROR: test_file.py::test_it[[]*: @pytest.mark.perf_budget*mcs*")


def test_a_budget_that_a_conftest_adds_to_a_collected_model_overrides_its_table(
    run: pytest.Pytester,
) -> None:
    run.makepyprojecttoml(
        """
        [tool.modelperf.models."dense.onnx"]
        budget = {macs = 15, params = 14}
        """
    )
    conftest = """
        import pytest

        def pytest_itemcollected(item):
            item.add_marker(pytest.mark.perf_budget({budgets}))
    """
    run.makeconftest(conftest.format(budgets="macs=14, params=15"))
    assert_ended(run.runpytest_inprocess(*STATIC), "over budget: MACs 15, limit 14", failed=1)
    run.makeconftest(conftest.format(budgets="mcs=14"))
    wrong = run.runpytest_inprocess(*STATIC)
    assert_usage_error(wrong, "ERROR: dense.onnx::b1-c1: @pytest.mark.perf_budget*mcs*")


def test_stacked_budgets_are_put_together(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        import numpy as np

        @pytest.mark.perf_case(model="dense.onnx")
        @pytest.mark.perf_budget(macs=14)
        @pytest.mark.perf_budget(params=np.int64(14))
        def test_it(): pass
        """,
    )
    assert_ended(result, "over budget: * 15, limit 14; also *", failed=1)


def test_budgets_hold_for_each_call_of_the_fixture(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        @pytest.mark.perf_budget(macs=15)
        def test_it(modelperf):
            assert modelperf("dense.onnx").static.macs == 15
            modelperf("dense.onnx", batch_size=2)
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['>*modelperf("dense.onnx", batch_size=2)', "E*over budget: MACs*"])
    assert_says_no_internals(result)


# A run that goes on to its end shows no traceback, which takes pytest longer than all else.
COLLECTED = ("--collect-only", "--continue-on-collection-errors")


def refused(run: pytest.Pytester, markers: Sequence[str], source: str = PASSES) -> str:
    """The one line of an error at collection."""
    decorators = "\n".join(f"@pytest.mark.{marker}" for marker in markers)
    return message_of(run_static(run, f"{decorators}\n{source}", *COLLECTED))


def message_of(result: pytest.RunResult) -> str:
    result.assert_outcomes(errors=1)
    (message,) = between(result.outlines, "ERROR collecting", "= short test").splitlines()
    assert_says_no_internals(result)
    return message


DENSE = 'model="dense.onnx"'


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (f"perf_case({DENSE}, batchsize=8)", "there is no argument 'batchsize'. Did you mean 'bat"),
        (f"perf_case({DENSE}, batch_size=0)", "batch_size takes whole numbers of 1 or more, not 0"),
        (f"perf_case({DENSE}, batch_size='8')", "batch_size takes whole numbers of 1 or more, not"),
        (f"perf_case({DENSE}, batch_size=True)", "batch_size takes whole numbers of 1 or more, no"),
        (f"perf_case({DENSE}, batch_size=[])", "batch_size is an empty list"),
        (f"perf_case({DENSE}, cores=[1, 1])", "cores has 1 twice"),
        (f"perf_case({DENSE}, dims=[64])", 'such as {seq = 64}, or {"seq": 64} in Python, not a'),
        (f"perf_case({DENSE}, dims={{'M': 64}})", "dense.onnx has no dimension 'M'"),
        (f"perf_case({DENSE}, tolerance=3)", "tolerance takes a share such as 0.03"),
        (f"perf_case({DENSE}, max_seconds=-1)", "max_seconds takes seconds above 0"),
        (f"perf_case({DENSE}, inputs='x')", "the input 'x' cannot be read"),
        (f"perf_case({DENSE}, input_file='no.npz')", "no.npz"),
        (f"perf_case('dense.onnx', {DENSE})", "names its model twice"),
        ("perf_case('dense.onnx', 8)", "takes one argument without a name, the model"),
        ("perf_case()", "is empty: give a model"),
        ("perf_case(batch_size=8)", "names no model: give model='model.onnx'"),
        ("perf_case(model='')", "model is an empty text"),
        ("perf_case(model=42)", "model takes a path, bytes, an onnx.ModelProto or a function"),
        ("perf_case(model=b'no model')", "the given model"),
    ],
)
def test_a_meaningless_case_is_reported_at_collection_with_the_name_of_the_test(
    run: pytest.Pytester, marker: str, message: str
) -> None:
    line = refused(run, [marker])
    assert line.startswith("test_file.py::test_it: ")
    assert message in line


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("perf_budget(latency=12)", "there is no budget 'latency'. Did you mean 'latency_ms'?"),
        ("perf_budget(12)", "takes budgets by name, such as latency_ms=12"),
        ("perf_budget()", "is empty: give a budget, such as latency_ms=12"),
        ("perf_budget(macs=0)", "macs takes a positive number such as 4.1e9"),
        ("perf_budget(latency_ms='fast')", "latency_ms takes a positive number such as 12.5"),
        ("perf_budget(latency_ms=None)", "latency_ms takes a positive number such as 12.5"),
        ("perf_budget(latency_ms=1, p50_ms=1)", "latency_ms and p50_ms are the same budget"),
    ],
)
def test_a_meaningless_budget_is_reported_at_collection_with_the_name_of_the_test(
    run: pytest.Pytester, marker: str, message: str
) -> None:
    line = refused(run, [f"perf_case({DENSE})", marker])
    assert line.startswith("test_file.py::test_it: @pytest.mark.perf_budget")
    assert message in line


@pytest.mark.parametrize("way", ["parameter", "conftest"])
def test_a_late_budget_of_a_test_with_the_fixture_that_means_nothing_is_one_line(
    run: pytest.Pytester, way: str
) -> None:
    if way == "conftest":
        run.makeconftest(
            """
            import pytest

            def pytest_itemcollected(item):
                item.add_marker(pytest.mark.perf_budget(mcs=15))
            """
        )
    mark = ", marks=pytest.mark.perf_budget(mcs=15)" if way == "parameter" else ""
    run.makepyfile(
        test_file=f"""
        import pytest

        @pytest.mark.parametrize("number", [pytest.param(1{mark})])
        def test_it(modelperf, number): pass
        """
    )
    result = run.runpytest_inprocess("--modelperf")
    assert_usage_error(result, "ERROR: test_file.py::test_it[[]1]: @pytest.mark.perf_bud*mcs*")


def test_a_skipped_test_with_the_fixture_may_have_a_budget_that_means_nothing(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(
        test_file="""
        import pytest

        @pytest.mark.skip
        @pytest.mark.perf_budget(mcs=15)
        def test_it(modelperf): pass
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("markers", "message"),
    [
        (
            [f"perf_case({DENSE})", "perf_case(cores=1)", "perf_case(cores=2)"],
            "@pytest.mark.perf_case gives two values for cores: ",
        ),
        (
            [f"perf_case({DENSE}, cores=1)", "perf_case(cores=2)"],
            "@pytest.mark.perf_case gives two values for cores: ",
        ),
        (
            [f"perf_case({DENSE})", "perf_budget(macs=1)", "perf_budget(macs=2)"],
            "@pytest.mark.perf_budget gives two values for macs: ",
        ),
        (
            [f"perf_case({DENSE})", "perf_budget(latency_ms=1)", "perf_budget(p50_ms=2)"],
            "@pytest.mark.perf_budget: p50_ms and latency_ms are the same budget: give one.",
        ),
        (
            [f"perf_case({DENSE})", f"perf_case({DENSE}, batch_size=[2, 1])"],
            "two markers make the same case b1-c1: remove one",
        ),
        (
            [f"perf_case({DENSE})", "perf_case(model='deeper/dense.onnx')"],
            "two markers make the same case",
        ),
        (["perf_budget(macs=1)"], "@pytest.mark.perf_budget needs something to m"),
    ],
)
def test_markers_that_do_not_go_together_are_refused(
    run: pytest.Pytester, markers: Sequence[str], message: str
) -> None:
    write_dense(run.path / "deeper/dense.onnx")
    line = refused(run, markers)
    assert line.startswith("test_file.py::test_it: ")
    assert message in line


def test_an_error_in_an_outer_marker_is_not_hidden_by_an_inner_one(run: pytest.Pytester) -> None:
    result = run_static(
        run,
        """
        pytestmark = [pytest.mark.perf_case(model="dense.onnx"), pytest.mark.perf_budget(mac=1)]

        @pytest.mark.perf_budget(macs=15)
        def test_it(): pass
        """,
        *COLLECTED,
    )
    assert "'mac'. Did you mean 'macs'?" in message_of(result)


def test_the_cases_of_a_class_of_a_name_with_odd_characters_are_shown_in_one_line(
    run: pytest.Pytester,
) -> None:
    body = indent("@pytest.mark.perf_case('a\\nb.onnx')\ndef test_it(self): pass", "    ")
    result = run_static(run, f"class TestIt:\n{body}")
    assert_ended(result, r"there is no file a\nb.onnx in *", errors=1)


def test_two_tests_whose_cases_would_be_stored_in_one_place_are_refused(
    run: pytest.Pytester,
) -> None:
    source = """
    @pytest.mark.perf_case("linear.onnx", dims={"seq": 64})
    def test_short(): pass

    @pytest.mark.perf_case("linear.onnx", dims={"seq": SIZE})
    def test_long(): pass
    """
    result = run_static(run, source.replace("SIZE", "128"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert "test_short" in line
    assert "test_long" in line
    assert "baseline=" in line
    # The very same case may have two tests, even if one of them names the default engine.
    usual = source.replace("SIZE}", '64}, engine="onnxruntime"')
    assert run_static(run, usual).ret == pytest.ExitCode.OK
    other = usual.replace('"onnxruntime"', '"openvino"')
    assert run_static(run, other).ret == pytest.ExitCode.USAGE_ERROR
    assert run_static(run, other, "--modelperf-engine=openvino").ret == pytest.ExitCode.OK
    assert run_static(run, source.replace("SIZE", "64")).ret == pytest.ExitCode.OK
    named = source.replace("SIZE}", '128}, baseline="long.onnx"')
    assert run_static(run, named).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("modelperf", "modelperf"),
        ("request", "request.getfixturevalue('modelperf')"),
        ("by_name", "by_name"),
    ],
)
def test_budgets_of_the_fixture_share_the_level_of_the_run(
    run: pytest.Pytester, argument: str, asked: str
) -> None:
    run.makepyfile(
        f"""
        import pytest

        @pytest.fixture
        def by_name(request):
            return request.getfixturevalue("modelperf")

        @pytest.mark.perf_budget(latency_ms=1, p99_ms=2, macs=3)
        def test_it({argument}):
            # A case against a baseline, and two limits that a run checks; twice.
            assert {asked}._run.judged == 6
        """
    )
    assert_ended(run.runpytest_inprocess("--modelperf"), passed=1)


def test_the_least_times_of_a_marker_and_a_call_reach_the_measurement(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: list[tuple[float, float]] = []

    def check(_: object, check: CaseCheck) -> NoReturn:
        policy = check.setup.policy
        policies.append((policy.min_warmup_seconds, policy.min_seconds))
        raise MeasureError("not run")

    monkeypatch.setattr("pytest_modelperf.testing.checking.Checker.check", check)
    run.makepyfile(
        """
        import pytest

        @pytest.mark.perf_case("dense.onnx", warmup_seconds=1, min_seconds=2)
        def test_marked(): pass

        def test_called(modelperf):
            modelperf.check("dense.onnx", warmup_seconds=3)

        def test_refused(modelperf):
            modelperf.check("dense.onnx", warmup_seconds=11)
        """
    )
    result = run.runpytest_inprocess("--modelperf", "--modelperf-min-seconds=4")
    assert policies == [(1, 4), (3, 4)]
    result.stdout.fnmatch_lines(["*warmup_seconds is 11, which is longer than max_seconds, 10:*"])


def test_figures_requested_by_a_marker_or_a_call_reach_its_check(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures: list[Measure] = []

    def check(_: object, check: CaseCheck) -> NoReturn:
        measures.append(check.measure)
        raise MeasureError("not run")

    def compare(_: object, before: CaseCheck, after: CaseCheck) -> NoReturn:
        measures.extend([before.measure, after.measure])
        raise MeasureError("not run")

    monkeypatch.setattr("pytest_modelperf.testing.checking.Checker.check", check)
    monkeypatch.setattr("pytest_modelperf.testing.checking.Checker.compare", compare)
    run.makepyfile(
        """
        import pytest

        @pytest.mark.perf_case("dense.onnx")
        def test_plain(): pass

        @pytest.mark.perf_case("dense.onnx", measure="always")
        def test_marked(): pass

        def test_called(modelperf):
            modelperf.check("dense.onnx", measure="always")

        def test_compared(modelperf):
            modelperf.compare("dense.onnx", "dense.onnx", measure="always")

        def test_refused(modelperf):
            modelperf.check("dense.onnx", measure="never")
        """
    )
    changed, always = Measure.CHANGED, Measure.ALWAYS
    result = run.runpytest_inprocess("--modelperf")
    assert measures == [changed, always, always, always, always]
    result.stdout.fnmatch_lines(["*modelperf: measure takes changed or always, not 'never'.*"])
    measures.clear()
    run.runpytest_inprocess("--modelperf", "--modelperf-measure=changed")
    assert measures == [changed] * 5


@pytest.mark.slow
def test_all_checks_of_a_run_share_its_level_however_many_a_test_makes(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[float] = []

    def check(_: object, check: CaseCheck) -> NoReturn:
        timed = [budget for budget in check.budgets if budget.figure.is_timed]
        spent.append(check.gate.level * (1 + len(timed)))
        raise MeasureError("not run")

    def compare(_: object, __: object, ___: object, gate: Gate, *____: object) -> NoReturn:
        spent.append(gate.level)
        raise MeasureError("not run")

    # The level of a check is in none of its reports, and here no check needs to run.
    monkeypatch.setattr("pytest_modelperf.testing.checking.Checker.check", check)
    monkeypatch.setattr("pytest_modelperf.comparing.request.compare_models", compare)
    run.makepyfile(
        """
        import pytest

        def call(called, *arguments, **words):
            with pytest.raises(pytest.fail.Exception):
                called(*arguments, **words)

        @pytest.mark.perf_case(model="dense.onnx", batch_size=[1, 2], tolerance="p50=2 %,p99=5 %")
        def test_plain(): pass

        @pytest.mark.perf_budget(latency_ms=1)
        def test_many(modelperf):
            for _ in range(7):
                call(modelperf.check, "dense.onnx")
            for _ in range(12):
                call(modelperf.compare, "dense.onnx", "linear.onnx")
                call(modelperf, "dense.onnx", tolerance="p50=2 %,p90=5 %,p99=5 %")
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(failed=2, passed=1)
    # Two cases against their baselines; and one with a budget, which counts twice.
    each = RUN_LEVEL / (2 * 1 + 2 * 2)
    assert spent[:5] == pytest.approx([each, each, 2 * each, 2 / 3 * each, each / 3])
    assert 0.95 * RUN_LEVEL < sum(spent) < RUN_LEVEL
