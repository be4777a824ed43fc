"""Models that do not exist at collection: those of fixtures and functions, and absent files."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pytest_modelperf.files.store import FOLDER_VARIABLE
from tests.obtaining.test_making import write_ort
from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    assert_usage_error,
    collected,
    write_dense,
    write_table,
)

EXPORT = """
    from pathlib import Path
    HERE = Path(__file__).parent

    def encoder():
        with (HERE / "runs.txt").open("a") as file:
            file.write("run ")
        return (HERE / "dense.onnx").read_bytes()
"""
FIXTURES = """
    import pytest
    from pathlib import Path

    @pytest.fixture(scope="session")
    def folder(tmp_path_factory):
        return tmp_path_factory.mktemp("exported")

    @pytest.fixture(scope="session", params=["small", "large"])
    def size(request):
        return request.param

    @pytest.fixture(scope="session")
    def exported(folder, size):
        with open("exports.txt", "a") as file:
            file.write(f"{size} ")
        source = Path("dense.onnx" if size == "small" else "linear.onnx").read_bytes()
        (folder / f"{size}.onnx").write_bytes(source)
        return folder / f"{size}.onnx"

    @pytest.fixture
    def content():
        return Path("dense.onnx").read_bytes()

    @pytest.fixture
    def broken():
        raise LookupError("no weights here")

    @pytest.fixture
    def wrong():
        return {"a": 1}
"""


@pytest.fixture(autouse=True)
def cache(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fixtures and a module that make models, and an empty cache."""
    run.makeconftest(dedent(FIXTURES))
    run.makepyfile(exporting=dedent(EXPORT))
    monkeypatch.setenv(FOLDER_VARIABLE, str(run.path / "cache"))
    return run.path / "cache"


def run_static(run: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    run.makepyfile(test_late=f"import pytest\n\n{dedent(source)}")
    return run.runpytest_inprocess(*STATIC, *arguments)


def names(run: pytest.Pytester) -> list[str]:
    return sorted(each.name for each in (run.path / "baselines").iterdir())


EXPORTED = """
    @pytest.mark.perf_case(fixture="exported", batch_size=[1, 8], dims={"seq": 2})
    @pytest.mark.perf_budget(macs=1000)
    def test_it(): pass
"""


def test_the_ids_of_a_fixture_need_no_file_and_each_of_its_models_is_made_once(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(test_late=f"import pytest\n\n{dedent(EXPORTED)}")
    assert collected(run) == [
        f"test_late.py::test_it[{size}-{batch}-c1]"
        for size in ("small", "large")
        for batch in ("b1", "b8")
    ]
    assert not (run.path / "exports.txt").exists()
    source = EXPORTED.replace(', dims={"seq": 2}', "")
    assert_ended(run_static(run, source, "-k", "small"), passed=2, deselected=2)
    assert (run.path / "exports.txt").read_text("utf-8") == "small "


def test_each_parameter_of_a_fixture_has_a_baseline_of_its_own(run: pytest.Pytester) -> None:
    source = """
        @pytest.mark.perf_case(fixture="exported", inputs="x:f32:2x7x3")
        def test_large(): pass
    """
    run_static(run, source, "-k", "large", "--modelperf-update-baseline")
    source = """
        @pytest.mark.perf_case(fixture="exported", baseline="models/mine.onnx")
        def test_small(): pass
    """
    run_static(run, source, "-k", "small", "--modelperf-update-baseline")
    assert names(run) == ["exported%5blarge%5d+", "models--mine%5bsmall%5d"]


def test_the_value_of_a_fixture_is_recorded_and_judged_by_its_name(run: pytest.Pytester) -> None:
    source = """
        @pytest.mark.perf_case(fixture="content")
        def test_it(content): assert content
    """
    run_static(run, source, "--modelperf-update-baseline").assert_outcomes(passed=1)
    assert names(run) == ["content+"]
    write_dense(run.path / "dense.onnx", width=9)
    assert_ended(run_static(run, source), "*MACs*15*27*", failed=1)


@pytest.mark.parametrize("level", ["class", "module"])
def test_a_marker_of_a_class_or_module_may_name_a_fixture(run: pytest.Pytester, level: str) -> None:
    mark = 'pytest.mark.perf_case(fixture="content")'
    source = {
        "class": f"@{mark}\nclass TestIt:\n    def test_it(self): pass",
        "module": f"pytestmark = {mark}\n\ndef test_it(): pass",
    }[level]
    run.makepyfile(test_late=f"import pytest\n\n{source}")
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)


def test_an_error_of_a_model_is_that_of_its_test_alone(run: pytest.Pytester) -> None:
    source = """
        def make_broken():
            raise LookupError("no encoder here")

        @pytest.mark.perf_case(make=make_broken, baseline="a.onnx")
        def test_broken_function(): pass

        @pytest.mark.perf_case(fixture="broken")
        def test_broken(): pass

        @pytest.mark.perf_case(fixture="wrong")
        def test_wrong(): pass

        @pytest.mark.perf_case(fixture="unknown")
        def test_unknown(): pass

        @pytest.mark.perf_case(fixture="content", generate=4)
        def test_without_the_phase(): pass

        @pytest.mark.perf_case(make="exporting:encoder")
        def test_without_a_baseline(): pass

        @pytest.mark.perf_case("nowhere.onnx")
        def test_absent(): pass

        @pytest.mark.perf_case(fixture="content")
        def test_it(): pass

        @pytest.mark.perf_case("dense.onnx")
        def test_file(): pass
    """
    result = assert_ended(run_static(run, source), errors=7, passed=2)
    for lines in (
        [">*raise LookupError(*", "test_late.py:5: LookupError"],
        ["*LookupError: no weights here"],
        ["the fixture wrong returned a value of the type dict; expected *"],
        ["*fixture 'unknown' not found"],
        ["*name its baseline, as in baseline='encoder.onnx'*"],
        ["there is no file nowhere.onnx in *"],
    ):
        result.stdout.fnmatch_lines(lines)
    assert_says_no_internals(result)
    absent = run.runpytest_inprocess(*STATIC, "test_late.py::test_absent")
    absent.stdout.no_fnmatch_line("*entries are hidden*")


def test_without_the_option_no_fixture_runs(run: pytest.Pytester) -> None:
    run.makepyfile(test_late=f"import pytest\n\n{dedent(EXPORTED)}")
    run.runpytest_inprocess().assert_outcomes(skipped=1)
    assert not (run.path / "exports.txt").exists()


def test_a_function_in_a_marker_makes_the_model_that_its_baseline_names(
    run: pytest.Pytester,
) -> None:
    source = """
        from exporting import encoder

        @pytest.mark.perf_case(lambda: encoder(), baseline="encoder.onnx", batch_size=[1, 8])
        def test_it(): pass

        @pytest.mark.perf_case(make=encoder, baseline="other.onnx")
        def test_named(): pass
    """
    run_static(run, source, "--modelperf-update-baseline").assert_outcomes(passed=3)
    assert names(run) == ["encoder", "other"]
    assert (run.path / "exporting.py").with_name("runs.txt").read_text("utf-8") == "run run "


def test_the_table_of_a_function_makes_tests_of_its_own(run: pytest.Pytester) -> None:
    source = """
        [tool.modelperf.models."models/encoder.onnx"]
        make = "exporting:encoder"
        batch_size = [1, 8]
    """
    write_table(run, source)
    tests = [f"pyproject.toml::models/encoder.onnx[b{size}-c1]" for size in (1, 8)]
    assert collected(run) == tests
    assert collected(run, tests[1]) == tests[1:]
    assert collected(run, "-k", "encoder and b8") == tests[1:]
    assert_ended(run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline"), passed=2)
    assert names(run) == ["models--encoder"]
    assert_ended(run.runpytest_inprocess(*STATIC, "--modelperf-json=run.json"), passed=2)
    assert (run.path / "runs.txt").read_text("utf-8") == "run "
    assert "the model is from an earlier run" in (run.path / "run.json").read_text("utf-8")
    run.runpytest_inprocess(*STATIC, "--modelperf-no-cache").assert_outcomes(passed=2)
    assert (run.path / "runs.txt").read_text("utf-8") == "run run "


def test_an_error_of_a_function_fails_the_setup_of_its_tests(run: pytest.Pytester) -> None:
    source = """
        [tool.modelperf.models."a.onnx"]
        make = "exporting:encodr"
        [tool.modelperf.models."b.onnx"]
        make = "exporting:encoder"
    """
    write_table(run, source)
    result = run.runpytest_inprocess(*STATIC)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["there is no encodr in exporting*Did you mean 'encoder'?"])
    assert_says_no_internals(result)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("a.onnx", 'make = "m:f"\nurl = "https://h/a#sha256=0"', "has make and url"),
        ("a.onnx", 'url = "https://host/a.onnx"', "has no digest"),
        (
            "*.onnx",
            'make = "exporting:encoder"',
            "is a pattern, and make and url are about one model",
        ),
    ],
)
def test_a_table_that_does_not_fix_its_model_is_refused(
    run: pytest.Pytester, name: str, table: str, message: str
) -> None:
    write_table(run, f'[tool.modelperf.models."{name}"]\n{table}')
    assert_usage_error(run.runpytest_inprocess(*STATIC), f"*{message}*")


def test_a_file_that_a_fixture_writes_is_there_at_setup(run: pytest.Pytester) -> None:
    source = """
        import shutil

        @pytest.fixture(autouse=True)
        def exports():
            shutil.copy("dense.onnx", "made.onnx")

        @pytest.mark.perf_case("made.onnx")
        def test_it(): pass
    """
    run_static(run, source, "--modelperf-update-baseline").assert_outcomes(passed=1)
    assert names(run) == ["made"]


def test_a_file_of_the_runtime_is_tested_by_its_path_and_says_what_is_not_known(
    run: pytest.Pytester,
) -> None:
    write_ort(run.path / "dense.onnx", run.path / "dense.ort")
    write_table(run, '[tool.modelperf.models."*.ort"]\nbatch_size = [1, 8]')
    result = assert_ended(run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline"), passed=2)
    assert names(run) == ["dense.ort+"]
    result = run.runpytest_inprocess(*STATIC, "dense.ort", "--modelperf-json=run.json")
    result.assert_outcomes(passed=2)
    assert "the model before the conversion is not known" in (run.path / "run.json").read_text()
    result = run.runpytest_inprocess(*STATIC, "dense.ort", "--modelperf-engine=openvino")
    assert_ended(result, "dense.ort is in ONNX Runtime's own format, which openvino *", errors=2)


def test_a_call_takes_a_file_of_the_runtime(run: pytest.Pytester) -> None:
    write_ort(run.path / "dense.onnx", run.path / "dense.ort")
    source = """
        def test_it(modelperf):
            assert modelperf.check("dense.ort", batch_size=2).static.macs == 30
    """
    run_static(run, source, "--modelperf-update-baseline").assert_outcomes(passed=1)
    assert names(run) == ["dense.ort+"]


def test_workers_of_xdist_run_a_function_once(run: pytest.Pytester) -> None:
    source = """
        [tool.modelperf.models."models/encoder.onnx"]
        make = "exporting:encoder"
        batch_size = [1, 8]
    """
    write_table(run, source)
    result = run.runpytest_subprocess(*STATIC, "-p", "xdist", "-n", "2", "--dist", "load")
    result.assert_outcomes(passed=2)
    assert (run.path / "runs.txt").read_text("utf-8") == "run "


def test_a_test_that_is_run_again_gets_the_new_value_of_its_fixture(run: pytest.Pytester) -> None:
    source = """
        from pathlib import Path

        @pytest.fixture
        def grown():
            name = "linear.onnx" if Path("seen.txt").exists() else "dense.onnx"
            Path("seen.txt").write_text("seen")
            return name

        @pytest.mark.perf_case(fixture="grown", baseline="grown.onnx")
        @pytest.mark.perf_budget(params=10)
        def test_it(): pass
    """
    result = run_static(run, source, "-p", "pytest_rerunfailures", "--reruns", "1")
    result.stdout.fnmatch_lines(["*linear.onnx has a dimension without a size*"])


def test_a_call_takes_a_function_but_no_name_of_a_fixture(run: pytest.Pytester) -> None:
    source = """
        from exporting import encoder

        def test_it(modelperf):
            assert modelperf(encoder, baseline="encoder.onnx").static.macs == 15

        def test_fixture(modelperf):
            modelperf(None, fixture="content")
    """
    result = run_static(run, source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*fixture is for the marker perf_case: have the test take *"])
