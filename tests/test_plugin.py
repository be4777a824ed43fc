"""The plugin in whole pytest runs: what it loads, the fixture, its errors, and extensions."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import pytest_modelperf
from tests.small_models import ones, parse

LINEAR = "g (float[N,seq,3] x) => (float[N,seq,5] y) { [linear] y = MatMul(x, w) }"
BLEND = "g (float[2,3] x) => (float[2,3] y) { y = my.ops.Blend(x) }"
HEAVY = {"numpy", "onnx", "onnxruntime", "scipy", "rich", "msgspec"}

# What names a file or a function of ours, or the machinery of exceptions.
INTERNALS = ["*pytest_modelperf/*", "*Traceback*", "*During handling*", "*direct cause*"]

BLEND_COSTS_1234 = """
    from pytest_modelperf.profiler.static.cost import Cost

    def modelperf_register_operators(operators):
        operators.register("my.ops::Blend", count=lambda node: Cost(elementwise_ops=1234))
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with two models, where pytest finds our plugin and no other that is installed."""
    model = parse(LINEAR, weights={"w": ones(3, 5)})
    (pytester.path / "linear.onnx").write_bytes(model.SerializeToString())
    (pytester.path / "blend.onnx").write_bytes(parse(BLEND).SerializeToString())
    package = str(Path(pytest_modelperf.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", package, prepend=os.pathsep)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin -p no:cacheprovider")
    return pytester


BUDGET = """
    def test_budget(modelperf):
        assert modelperf("linear.onnx", dims={"seq": 64}).static.macs == 64 * 3 * 5
"""


# -- without the option


def test_without_the_option_tests_that_profile_are_skipped_with_one_line(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(f"{BUDGET}\n    def test_other(): pass\n")
    result = run.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["SKIPPED [[]1[]] *: needs --modelperf"])
    assert result.ret == pytest.ExitCode.OK


def test_without_the_option_nothing_heavy_is_imported(run: pytest.Pytester) -> None:
    run.makeconftest(
        f"""
        import sys

        def pytest_unconfigure():
            print("plugin:", "pytest_modelperf.fixtures" in sys.modules)
            print("heavy:", sorted({HEAVY!r} & set(sys.modules)))
        """
    )
    run.makepyfile(BUDGET)
    result = run.runpytest_subprocess("-s")
    result.stdout.fnmatch_lines(["plugin: True", "heavy: [[][]]"])


def test_with_the_option_the_same_list_is_not_empty(run: pytest.Pytester) -> None:
    """What the test before rests on: the list would show what is imported."""
    run.makeconftest(
        f"""
        import sys

        def pytest_unconfigure():
            print("heavy:", sorted({HEAVY!r} & set(sys.modules)))
        """
    )
    run.makepyfile(BUDGET)
    result = run.runpytest_subprocess("-s", "--modelperf")
    result.stdout.fnmatch_lines(["heavy: [[]*'numpy', 'onnx'[]]"])


def test_the_plugin_can_be_switched_off(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    install_entry_point(run.path / "site", monkeypatch)
    run.makepyfile(f"{BUDGET}\n    def test_other(): pass\n")
    options = ("-p", "no:cacheprovider")
    run.runpytest_subprocess(*options, "--modelperf").assert_outcomes(passed=2)
    without = run.runpytest_subprocess(*options, "-p", "no:modelperf")
    without.assert_outcomes(passed=1, errors=1)
    without.stdout.fnmatch_lines(["*fixture 'modelperf' not found"])


def install_entry_point(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the plugin an installed one where it is only a folder on the path."""
    if any(entry.name == "modelperf" for entry in entry_points(group="pytest11")):
        return
    info = site / "pytest_modelperf-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-modelperf\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nmodelperf = pytest_modelperf.plugin\n")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)


# -- the fixture


def test_a_profile_is_a_value_to_assert_on(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        from pathlib import Path
        import onnx

        def test_sizes(modelperf):
            case = modelperf("linear.onnx", batch_size=4, dims={"seq": 64}, cores=2)
            assert case.case.id == "b4-c2"
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

        def test_any_form_of_a_model(modelperf):
            path = Path("linear.onnx")
            forms = [path, str(path), path.read_bytes(), onnx.load(path)]
            profiles = [modelperf(form, dims={"seq": 2}).static for form in forms]
            assert profiles == [profiles[0]] * 4
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=4)


def test_a_failed_budget_is_explained_in_a_few_lines(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_budget(modelperf):
            assert modelperf("linear.onnx", dims={"seq": 64}).static.macs <= 100
        """
    )
    result = run.runpytest_inprocess("--modelperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert 960 <= 100"])
    result.stdout.no_fnmatch_line("*StaticLayer(*")
    explained = [line for line in result.outlines if line.startswith("E ")]
    assert max(map(len, explained)) < 160


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("modelperf('nowhere.onnx')", "there is no file nowhere.onnx*linear.onnx*"),
        ("modelperf('linear.onnx')", "linear.onnx has a dimension without a size: 'seq' *"),
        ("modelperf('linear.onnx', dims={'sq': 1})", "linear.onnx has no dimension 'sq'*'seq'*"),
        ("modelperf('linear.onnx', batch_size=0)", "*batch size of 0*give 1 or more*"),
        ("modelperf('linear.onnx', inputs=['x'])", "the input 'x' cannot be read*"),
        ("modelperf(b'no model')", "the given model is not *"),
        ("modelperf(42)", "a model is *, not int*"),
    ],
)
def test_an_error_is_one_message_at_the_line_of_the_test(
    run: pytest.Pytester, call: str, message: str
) -> None:
    run.makepyfile(
        f"""
        def test_broken(modelperf):
            {call}

        def test_sound(modelperf):
            modelperf("linear.onnx", dims={{"seq": 1}})
        """
    )
    result = run.runpytest_inprocess("--modelperf")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"*{message}"])
    result.stdout.fnmatch_lines([f">*{call.replace('[', '[[]')}"])
    for pattern in INTERNALS:
        result.stdout.no_fnmatch_line(pattern)


def test_one_input_may_be_given_as_it_is(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_input(modelperf):
            assert modelperf("linear.onnx", inputs="x:f32:2x7x3").static.macs == 2 * 7 * 15
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_the_option_and_the_fixture_say_what_they_are_for(run: pytest.Pytester) -> None:
    run.runpytest_inprocess("--help").stdout.fnmatch_lines(["*--modelperf *"])
    run.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(
        ["modelperf [[]session scope[]]*", "*Profile an ONNX model: *"]
    )


# -- extensions

COUNTS_BLEND = """
    def test_blend(modelperf):
        static = modelperf("blend.onnx").static
        assert (static.elementwise_ops, static.coverage) == (1234, 1.0)
"""


def test_a_conftest_registers_operators(run: pytest.Pytester) -> None:
    run.makeconftest(BLEND_COSTS_1234)
    run.makepyfile(COUNTS_BLEND)
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_a_conftest_deeper_down_registers_operators_too(run: pytest.Pytester) -> None:
    folder = run.mkdir("deeper")
    run.makeconftest(BLEND_COSTS_1234).rename(folder / "conftest.py")
    run.makepyfile(COUNTS_BLEND).rename(folder / "test_deeper.py")
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_without_a_conftest_the_operator_is_listed(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_blend(modelperf):
            static = modelperf("blend.onnx").static
            assert [u.qualified_op for u in static.uncounted] == ["my.ops::Blend"]
            assert static.coverage == 0.0
        """
    )
    run.runpytest_inprocess("--modelperf").assert_outcomes(passed=1)


def test_an_installed_package_registers_operators(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = run.path / "site"
    info = site / "blend_ops-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: blend-ops\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[modelperf]\nblend = blend_ops\n")
    run.makepyfile(blend_ops=BLEND_COSTS_1234).rename(site / "blend_ops.py")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    run.makepyfile(test_it=COUNTS_BLEND)
    run.runpytest_subprocess("--modelperf").assert_outcomes(passed=1)


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
def test_a_conftest_that_registers_wrongly_is_told_so(
    run: pytest.Pytester, body: str, message: str
) -> None:
    run.makeconftest(f"def modelperf_register_operators(operators):\n    {body}\n")
    run.makepyfile(COUNTS_BLEND)
    result = run.runpytest_inprocess("--modelperf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([message])
    for pattern in INTERNALS:
        result.stdout.no_fnmatch_line(pattern)
