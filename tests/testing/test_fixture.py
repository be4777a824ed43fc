"""The `modelperf` fixture: its arguments, its answers, its errors, and extensions."""

from __future__ import annotations

import json
import os

import pytest

from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    run_tests,
    write_dense,
    write_table,
)
from tests.support.small_models import parse

BLEND = "g (float[2,3] x) => (float[2,3] y) { y = my.ops.Blend(x) }"
BLEND_COSTS_1234 = """
    from pytest_modelperf.graph.operators.cost import Cost

    def modelperf_register_operators(operators):
        operators.register("my.ops::Blend", count=lambda node: Cost(elementwise_ops=1234))
"""


@pytest.fixture
def blend(run: pytest.Pytester) -> pytest.Pytester:
    """A folder with a model that has an unknown operator."""
    (run.path / "blend.onnx").write_bytes(parse(BLEND).SerializeToString())
    return run


@pytest.mark.slow
def test_a_profile_is_a_value_to_assert_on(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        from pathlib import Path
        import onnx

        def test_sizes(modelperf):
            case = modelperf("linear.onnx", batch_size=4, dims={"seq": 64})
            assert case.case.id == "b4-c1"
            assert case.static.macs == 4 * 64 * 15
            assert case.static.params == 15
            assert case.static.peak_activation_bytes == 4 * 64 * 5 * 4
            assert case.layer_types["MatMul"].macs == case.static.macs

        def test_whole_inputs(modelperf):
            assert modelperf("linear.onnx", inputs=["x:f32:2x7x3"]).static.macs == 2 * 7 * 15

        def test_sparsity(modelperf):
            assert modelperf("linear.onnx", dims={"seq": 1}).static.effective_macs is None
            case = modelperf("linear.onnx", dims={"seq": 1}, sparsity=True)
            assert case.static.effective_macs == 15

        def test_sparsity_of_a_check(modelperf):
            case = modelperf.check("linear.onnx", dims={"seq": 1}, sparsity=True)
            assert case.static.effective_macs == 15

        def test_any_form_of_a_model(modelperf):
            path = Path("linear.onnx")
            forms = [path, str(path), path.read_bytes(), onnx.load(path)]
            profiles = [modelperf(form, dims={"seq": 2}).static for form in forms]
            assert profiles == [profiles[0]] * 4
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=5)


def test_a_failed_budget_is_explained_in_a_few_lines(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_budget(modelperf):
            assert modelperf("linear.onnx", dims={"seq": 64}).static.macs <= 100
        """
    )
    result = assert_ended(run.runpytest_inprocess("--modelperf"), "E *assert 960 <= 100", failed=1)
    result.stdout.no_fnmatch_line("*StaticLayer(*")
    explained = [line for line in result.outlines if line.startswith("E ")]
    assert max(map(len, explained)) < 160


CASES_OF_BOTH = """
    import pytest

    def test_cores_that_there_are_not(modelperf):
        assert modelperf("dense.onnx", batch_size=4, cores=4096).case.id == "b4-c4096"

    def test_an_input_as_it_is(modelperf):
        assert modelperf("linear.onnx", inputs="x:f32:2x7x3").static.macs == 2 * 7 * 15

    def test_two_models(modelperf):
        found = modelperf.compare("dense.onnx", "wide.onnx", batch_size=2)
        (macs,) = [m for m in found.metrics if m.name == "macs"]
        assert (macs.before, macs.after) == (30, 42)

    @pytest.mark.perf_case(model="dense.onnx", batch_size=[1, 8])
    def test_the_profile_of_a_marker(modelperf):
        static = modelperf.profile.static
        assert static.macs == 15 * modelperf.profile.case.batch_size
        assert static.params == 15
"""


def test_counts_are_available_without_a_run(run: pytest.Pytester) -> None:
    write_dense(run.path / "wide.onnx", width=7)
    run_tests(run, CASES_OF_BOTH, *STATIC).assert_outcomes(passed=5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("modelperf('nowhere.onnx')", "there is no file nowhere.onnx*linear.onnx*"),
        ("modelperf('linear.onnx')", "linear.onnx has a dimension without a size: 'seq' *"),
        ("modelperf('linear.onnx', dims={'sq': 1})", "linear.onnx has no dimension 'sq'*'seq'*"),
        (
            "modelperf('linear.onnx', batch_size=0)",
            "*batch_size takes whole numbers of 1 or more, not 0.",
        ),
        ("modelperf('linear.onnx', inputs=['x'])", "the input 'x' cannot be read*"),
        (
            "modelperf('linear.onnx', engine_options={1: 'x'})",
            "*engine_options takes names that are texts, not 1.",
        ),
        ("modelperf('linear.onnx' * 400)", "there is no file linear.onnxlinear.onnx*"),
        ("modelperf(b'no model')", "the given model is not *"),
        ("modelperf.compare(None, 'linear.onnx')", "*modelperf: before takes a path, *NoneType."),
        ("modelperf.compare('linear.onnx', '')", "*modelperf: after is an empty text: *"),
        (
            "modelperf.compare('linear.onnx', 'linear.onnx', engine_before='tensorflow')",
            "*tensorflow*",
        ),
        (
            "modelperf.compare('linear.onnx', 'linear.onnx', engine_before=3)",
            "*modelperf: engine_before *",
        ),
        ("modelperf(42)", "*model takes a path, bytes, an onnx.ModelProto or a function, not int."),
        ("modelperf('dense.onnx', batchsize=8)", "*'batchsize'. Did you mean 'batch_size'?*"),
        (
            "modelperf('dense.onnx', batch_size=[1, 8])",
            "*modelperf: this makes 2 cases, and a call takes one*",
        ),
        ("modelperf.profile", "*this test has no case: mark it with *perf_case*"),
        (
            "modelperf.compare('fixed.onnx', 'dense.onnx')",
            "*runs at batch sizes 4 and dense.onnx at 1: they cannot be*",
        ),
        (
            "modelperf.check(Path('dense.onnx').read_bytes())",
            "*not a file has no path: name its baseline, *",
        ),
    ],
)
def test_an_error_is_one_message_at_the_line_of_the_test(
    run: pytest.Pytester, call: str, message: str
) -> None:
    fixed = parse("g (float[4,3] x) => (float[4,3] y) { y = Relu(x) }")
    (run.path / "fixed.onnx").write_bytes(fixed.SerializeToString())
    run.makepyfile(
        f"""
        from pathlib import Path

        def test_broken(modelperf):
            {call}

        def test_sound(modelperf):
            modelperf("linear.onnx", dims={{"seq": 1}})
        """
    )
    result = assert_ended(run.runpytest_inprocess("--modelperf"), f"*{message}", failed=1, passed=1)
    result.stdout.fnmatch_lines([f">*{call.replace('[', '[[]')}"])
    assert_says_no_internals(result)


def test_the_option_and_the_fixture_say_what_they_are_for(run: pytest.Pytester) -> None:
    run.runpytest_inprocess("--help").stdout.fnmatch_lines(["*--modelperf *"])
    run.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(
        ["modelperf [[]session scope[]]*", "*Profile an ONNX model: *"]
    )


def test_figures_that_need_a_run_are_skipped_if_none_is_wanted(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_it(modelperf):
            assert modelperf("dense.onnx").latency.p50_ms < 1e9
        """
    )
    result = run.runpytest_inprocess(*STATIC, "-rs")
    assert_ended(result, "SKIPPED*: needs a run, and --modelperf-static-only is given", skipped=1)


def test_a_call_looks_in_the_current_folder_and_next_to_the_test(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run.mkdir("deeper")
    (run.path / "dense.onnx").rename(folder / "near.onnx")
    run.makepyfile(
        test_deeper="""
        def test_it(modelperf):
            assert modelperf("near.onnx").static.macs == 15
            assert modelperf("linear.onnx", dims={"seq": 1}).static.macs == 15
        """
    ).rename(folder / "test_deeper.py")
    write_table(run, "")
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)
    monkeypatch.chdir(folder)
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)


def test_the_check_of_a_call_compares_the_model_with_its_baseline(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_it(modelperf):
            assert modelperf.check("dense.onnx").static.macs == 15
        """
    )
    run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline").assert_outcomes(passed=1)
    assert (run.path / "baselines/dense/model.json").is_file()
    write_dense(run.path / "dense.onnx", width=7)
    result = run.runpytest_inprocess(*STATIC)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ['>*modelperf.check("dense.onnx")*', "E*regressed: MACs *", "*accept: pytest *"]
    )
    assert_says_no_internals(result)


def test_two_checks_of_one_case_that_is_run_differently_are_not_recorded(
    run: pytest.Pytester,
) -> None:
    source = """
        def test_short(modelperf):
            modelperf.check("linear.onnx", dims={"seq": 64})

        def test_long(modelperf):
            modelperf.check("linear.onnx", dims={"seq": 128})
    """
    result = assert_ended(run_tests(run, source, *STATIC, "--modelperf-update-baseline"), failed=2)
    error = "error: two checks record the case b1-c1 of the baseline linear.onnx, but run it *"
    result.stdout.fnmatch_lines(["2 failed.", error])
    assert not (run.path / "baselines/linear").exists()
    run.makepyfile(source.replace("128", "64"))
    run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline").assert_outcomes(passed=2)


def test_a_model_that_is_not_a_file_is_recorded_by_the_name_of_its_baseline(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(
        """
        from pathlib import Path

        def test_named(modelperf):
            modelperf.check(Path("dense.onnx").read_bytes(), baseline="models/dense")
        """
    )
    run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline").assert_outcomes(passed=1)
    assert [path.name for path in (run.path / "baselines").rglob("model.json")] == ["model.json"]


def test_the_first_model_runs_on_another_engine_without_options(run: pytest.Pytester) -> None:
    run.makeconftest(
        """
        import pytest
        from pytest_modelperf.testing.current_run import run_of

        class Seen:
            def __init__(self, checker):
                self.context = checker.context
            def compare(self, before, after):
                setups = before.setup, after.setup
                return [(each.engine.name, dict(each.options)) for each in setups]

        @pytest.fixture
        def seen(request, modelperf):
            run = run_of(request.config)
            run.checker = Seen(run.checker)
            return modelperf
        """
    )
    run.makepyfile(
        """
        OPTIONS = {"graph_optimization_level": "basic"}

        def test_it(seen):
            found = seen.compare(
                "dense.onnx", "dense.onnx", engine_before="openvino", engine_options=OPTIONS
            )
            assert found == [("openvino", {}), ("onnxruntime", OPTIONS)]
        """
    )
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)


def test_callables_are_compared_in_the_process_of_the_test(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import numpy as np
        from pathlib import Path

        INPUT = np.ones((2, 3), np.float32)

        def test_it(modelperf):
            seen = []
            found = modelperf.compare(seen.append, Path("dense.onnx"), INPUT, max_seconds=0.2)
            assert seen[0] is INPUT
            assert found.failure is None
            # How many rounds fit into the time depends on the machine.
            assert found.rounds >= 1
            assert found.metric("latency_p50").before > 0
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_callables_are_not_compared_if_nothing_runs(run: pytest.Pytester) -> None:
    run.makepyfile("def test_it(modelperf):\n    modelperf.compare(print, 'dense.onnx', 1)")
    run.runpytest_inprocess(*STATIC).assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "compare(print, 'dense.onnx', 1, batch_size=2)",
            "*batch_size is for two ONNX models, and a callable gets the inputs that follow it.*",
        ),
        ("compare('dense.onnx', 'dense.onnx', 1)", "*two ONNX models get their inputs by inputs=*"),
        ("compare(print, 'dense.onnx', {'a': 1})", "*dense.onnx has no input 'a'. It has: x.*"),
        ("compare(print, 'lost.onnx', 1)", "*there is no file lost.onnx in *"),
    ],
)
def test_a_comparison_with_a_callable_says_what_is_wrong(
    run: pytest.Pytester, call: str, message: str
) -> None:
    result = run_tests(run, f"def test_it(modelperf):\n    modelperf.{call}", "--modelperf")
    assert_ended(result, f"E{message}", failed=1)
    assert_says_no_internals(result)


def test_the_names_of_models_are_shown_in_one_line(run: pytest.Pytester) -> None:
    run.makepyfile('def test_it(modelperf):\n    modelperf("a\\nb\\x1b[31m.onnx")')
    assert "\x1b" not in assert_ended(run.runpytest_inprocess(*STATIC), failed=1).stdout.str()


COUNTS_BLEND = """
    def test_blend(modelperf):
        static = modelperf("blend.onnx").static
        assert (static.elementwise_ops, static.coverage) == (1234, 1.0)
"""


def test_a_conftest_registers_operators(blend: pytest.Pytester) -> None:
    blend.makeconftest(BLEND_COSTS_1234)
    run_tests(blend, COUNTS_BLEND, "--modelperf").assert_outcomes(passed=1)


def test_a_conftest_deeper_down_registers_operators_too(blend: pytest.Pytester) -> None:
    folder = blend.mkdir("deeper")
    blend.makeconftest(BLEND_COSTS_1234).rename(folder / "conftest.py")
    blend.makepyfile(COUNTS_BLEND).rename(folder / "test_deeper.py")
    blend.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_without_a_conftest_the_operator_is_listed(blend: pytest.Pytester) -> None:
    blend.makepyfile(
        """
        def test_blend(modelperf):
            static = modelperf("blend.onnx").static
            assert [u.qualified_op for u in static.uncounted] == ["my.ops::Blend"]
            assert static.coverage == 0.0
        """
    )
    blend.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


@pytest.mark.slow
def test_an_installed_package_registers_operators(
    blend: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = blend.path / "site"
    info = site / "blend_ops-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: blend-ops\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[modelperf]\nblend = blend_ops\n")
    blend.makepyfile(blend_ops=BLEND_COSTS_1234).rename(site / "blend_ops.py")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    blend.makepyfile(test_it=COUNTS_BLEND)
    blend.runpytest_subprocess("--modelperf").assert_outcomes(passed=1)


def test_a_fixture_that_is_called_like_a_hook_is_left_alone(run: pytest.Pytester) -> None:
    run.makeconftest(
        """
        import pytest

        @pytest.fixture
        def modelperf_model():
            return "linear.onnx"
        """
    )
    run.makepyfile(
        """
        def test_budget(modelperf, modelperf_model):
            assert modelperf(modelperf_model, dims={"seq": 1}).static.macs == 15
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("operators.register('Blend')", "*the operator 'Blend' needs count, shapes or both*"),
        ("operators.register('my.ops::Blend', count=lambda node: 7)", "*returned int*a Cost*"),
        ("operators.register('my.ops::Blend', count=lambda node: 1 / 0)", "*ZeroDivisionError*"),
        ("1 / 0", "*conftest*ZeroDivisionError: division by zero*"),
    ],
)
def test_a_conftest_that_registers_wrongly_gets_an_error(
    blend: pytest.Pytester, body: str, message: str
) -> None:
    blend.makeconftest(f"def modelperf_register_operators(operators):\n    {body}\n")
    result = run_tests(blend, COUNTS_BLEND, "--modelperf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([message])
    assert_says_no_internals(result)


CHECKS_AFTERWARDS = """
    import pytest

    @pytest.fixture
    def afterwards(modelperf):
        yield
        modelperf.check("linear.onnx", dims={"seq": 1}, batch_size=2)

    @pytest.mark.perf_budget(macs=20)
    def test_it(afterwards, modelperf):
        modelperf.check("linear.onnx", dims={"seq": 1})
"""


def test_a_check_of_a_fixture_after_its_test_is_recorded_and_reported(run: pytest.Pytester) -> None:
    run.makepyfile(CHECKS_AFTERWARDS.replace("macs=20", "macs=30"))
    result = run.runpytest(*STATIC, "--modelperf-update-baseline", "--modelperf-json=run.json")
    result.assert_outcomes(passed=1)
    ids = [case["id"] for case in json.loads((run.path / "run.json").read_text())["cases"]]
    assert ids == ["b1-c1", "b2-c1"]
    assert_ended(run.runpytest(*STATIC), "2 passed.", passed=1)


def test_a_check_that_fails_after_its_test_is_an_error_of_that_test(run: pytest.Pytester) -> None:
    run.makepyfile(CHECKS_AFTERWARDS)
    result = run.runpytest(*STATIC, "-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*::test_it OVER BUDGET*", "*ERROR at teardown of test_it*"])
    assert 'value="over budget"' in (run.path / "junit.xml").read_text()
