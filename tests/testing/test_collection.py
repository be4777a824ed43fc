"""Models as tests of their own: named on the command line, or in `[tool.modelperf.models]`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    assert_usage_error,
    collected,
    run_tests,
    write_dense,
    write_linear,
    write_table,
)

ENCODER = """
    [tool.modelperf.models."models/encoder.onnx"]
    batch_size = [1, 8]
    cores = [1, 2]
"""


@pytest.fixture
def models(run: pytest.Pytester) -> pytest.Pytester:
    """Two more models, in a folder of their own."""
    write_dense(run.path / "models/encoder.onnx")
    write_dense(run.path / "models/decoder.onnx", width=7)
    return run


def test_a_named_model_is_a_test(run: pytest.Pytester) -> None:
    for path in ("dense.onnx", str(run.path / "dense.onnx")):
        assert collected(run, path) == ["dense.onnx::b1-c1"]
    run.runpytest_inprocess(*STATIC, "dense.onnx").assert_outcomes(passed=1)


def test_a_run_that_finds_nothing_says_how_a_model_is_named(run: pytest.Pytester) -> None:
    note = "note: no model is tested here: name one, *"
    result = run.runpytest_inprocess(*STATIC)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([note, "*type modelperf init, which finds the models*"])
    chosen = run.runpytest_inprocess(*STATIC, "dense.onnx", "-k", "b7")
    assert chosen.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    chosen.stdout.no_fnmatch_line(note)
    quiet = run.runpytest_inprocess(*STATIC, "-q")
    quiet.stdout.fnmatch_lines(["*model performance*", "note: no model is tested here*"])


@pytest.fixture
def project(run: pytest.Pytester) -> Path:
    """A project in the folder `part` of another one, which pytest takes as its root."""
    run.makepyprojecttoml("[tool.pytest.ini_options]")
    folder = run.mkdir("part")
    (run.path / "linear.onnx").rename(folder / "linear.onnx")
    table = '[tool.modelperf.models."linear.onnx"]\ndims = {seq = 2}\n'
    (folder / "pyproject.toml").write_text(table)
    run.mkdir("part/tests")
    return folder


@pytest.mark.parametrize(
    ("start", "arguments", "file", "go"),
    [
        (".", [], "part/pyproject.toml", "cd part && "),
        (".", ["part"], "part/pyproject.toml", "cd part && "),
        (".", ["part/linear.onnx"], "part/pyproject.toml", "cd part && "),
        ("part", [], "pyproject.toml", ""),
        ("part/tests", [], "../pyproject.toml", "cd .. && "),
    ],
)
def test_the_note_on_tables_outside_the_root_says_how_to_run_them(  # noqa: PLR0913, PLR0917  # one for each thing that differs
    run: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    project: Path,
    start: str,
    arguments: list[str],
    file: str,
    go: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(project.parent / start)
    result = run.runpytest_inprocess(*STATIC, *arguments)
    what = f"note: {file} has [[]tool.modelperf], which this run does not read: pytest took"
    remedy = f"type: {go}pytest --rootdir=. --modelperf"
    result.stdout.fnmatch_lines([f"{what} {run.path} as its root. * {remedy}"])
    result.stdout.no_fnmatch_line("*no model is tested*")


def test_tables_above_the_root_are_noted_if_a_run_starts_next_to_them(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    write_table(run, "[tool.modelperf]\nstrict = true\n")
    (run.mkdir("tests") / "pytest.ini").touch()
    result = run.runpytest_inprocess(*STATIC, "tests")
    note = "note: pyproject.toml has [[]tool.modelperf], which this run does not read: pytest took"
    way = "type: pytest --rootdir=. --modelperf"
    result.stdout.fnmatch_lines([f"{note} {run.path / 'tests'} as its root. * {way}"])


def test_the_way_to_the_tables_of_a_project_tests_its_models(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(project)
    result = assert_ended(run.runpytest_inprocess(*STATIC, "--rootdir=."), passed=1)
    result.stdout.no_fnmatch_line("*does not read*")


def test_another_project_without_settings_of_ours_is_not_noted(
    run: pytest.Pytester, project: Path
) -> None:
    (project / "pyproject.toml").write_text("[project]\nname = 'part'\n")
    run.runpytest_inprocess(*STATIC, "dense.onnx").stdout.no_fnmatch_line("*does not read*")
    (project / "pyproject.toml").write_text("not TOML")
    run.runpytest_inprocess(*STATIC, "dense.onnx", "part").stdout.no_fnmatch_line("*not read*")


def test_tables_of_the_root_are_for_a_run_that_starts_there(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\n[tool.pytest.ini_options]')
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(run.mkdir("below"))
    note = "note: no model is tested here: *cd .. && pytest --modelperf"
    result = run.runpytest_inprocess(*STATIC)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([note])
    Path("test_unit.py").write_text("def test_it(): pass", "utf-8")
    passed = run.runpytest_inprocess(*STATIC)
    assert passed.ret == pytest.ExitCode.OK
    passed.stdout.fnmatch_lines([note])
    run.runpytest_inprocess(*STATIC, "test_unit.py").stdout.no_fnmatch_line(note)


def test_models_and_test_files_are_run_in_the_order_that_they_are_named_in(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(test_first="def test_one(): pass")
    write_dense(run.path / "other.onnx")
    named = collected(run, "other.onnx", "test_first.py", "dense.onnx")
    assert named == ["other.onnx::b1-c1", "test_first.py::test_one", "dense.onnx::b1-c1"]


def test_other_models_of_a_folder_are_not_tests(models: pytest.Pytester) -> None:
    models.makepyfile(test_first="def test_one(): pass").rename(
        models.path / "models/test_first.py"
    )
    first = "models/test_first.py::test_one"
    assert collected(models, "models", "dense.onnx") == [first, "dense.onnx::b1-c1"]
    assert collected(models) == [first]


def test_a_model_that_is_not_there_is_one_line(run: pytest.Pytester) -> None:
    result = run.runpytest_inprocess(*STATIC, "nowhere.onnx")
    assert_usage_error(result, "ERROR: file or directory not found: nowhere.onnx")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no model", "*broken.onnx is not *"),
        (b"", "*broken.onnx*"),
        (b"\x08\x0a", "*broken.onnx*"),
    ],
    ids=["text", "empty", "no graph"],
)
def test_a_broken_model_is_one_message_and_the_others_are_run(
    run: pytest.Pytester, content: bytes, message: str
) -> None:
    (run.path / "broken.onnx").write_bytes(content)
    result = run.runpytest_inprocess(*STATIC, "broken.onnx", "dense.onnx")
    assert_ended(result, message, "FAILED broken.onnx::cases - *", failed=1, passed=1)
    assert_says_no_internals(result)


def test_the_table_that_a_model_with_an_open_size_shows_can_be_pasted(run: pytest.Pytester) -> None:
    failed = run.runpytest_inprocess(*STATIC, "linear.onnx")
    assert_ended(failed, "*linear.onnx *'seq'*", errors=1)
    failed.stdout.fnmatch_lines(["seq=64 in x[[]1]: a guess: a usual size"])
    failed.stdout.no_fnmatch_line("*--dim *")
    assert_says_no_internals(failed)
    lines = [line.strip() for line in failed.outlines if line.startswith("  ")]
    table = "\n".join(line for line in lines if line.startswith(("[tool", "dims", "inputs")))
    assert table == '[tool.modelperf.models."linear.onnx"]\ndims = {seq = 64}'
    write_table(run, table)
    run.runpytest_inprocess(*STATIC, "linear.onnx").assert_outcomes(passed=1)


def test_a_model_that_has_a_table_is_shown_its_keys_alone(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."linear.onnx"]\nbatch_size = 2')
    failed = run.runpytest_inprocess(*STATIC, "linear.onnx")
    failed.stdout.fnmatch_lines(["  dims = {seq = 64}"])
    failed.stdout.no_fnmatch_line("  [[]tool.*")


@pytest.mark.parametrize(
    "test",
    [
        "def test_it(modelperf):\n    modelperf.check('linear.onnx'{})",
        "import pytest\n@pytest.mark.perf_case('linear.onnx'{})\ndef test_it():\n    pass",
    ],
)
def test_the_arguments_that_are_shown_can_be_pasted(run: pytest.Pytester, test: str) -> None:
    failed = run_tests(run, test.format(""), *STATIC)
    assert failed.ret != pytest.ExitCode.OK
    (shown,) = {line.removeprefix("E").strip() for line in failed.outlines if '={"' in line}
    run.makepyfile(test_pasted=test.format(f", {shown}"))
    run.runpytest_inprocess(*STATIC, "test_pasted.py").assert_outcomes(passed=1)


ENCODER_CASES = [f"models/encoder.onnx::{case}" for case in ("b1-c1", "b1-c2", "b8-c1", "b8-c2")]
OF_ENCODER = '[tool.modelperf.models."models/encoder.onnx"]'
OF_LINEAR = '[tool.modelperf.models."linear.onnx"]'


@pytest.mark.parametrize(
    ("table", "arguments", "found"),
    [
        pytest.param(ENCODER, (), ENCODER_CASES, id="each combination"),
        pytest.param(ENCODER, ("models/encoder.onnx",), ENCODER_CASES, id="a model that is named"),
        pytest.param(ENCODER, ("models/encoder.onnx::b8-c1",), [ENCODER_CASES[2]], id="an id"),
        pytest.param(OF_ENCODER, ("models",), ENCODER_CASES[:1], id="a folder that is named"),
        pytest.param(
            f"{OF_LINEAR}\ndims = {{seq = [64, 128]}}",
            (),
            ["linear.onnx::b1-c1-seq64", "linear.onnx::b1-c1-seq128"],
            id="a dimension that varies stands in the id",
        ),
        pytest.param(
            f"{OF_LINEAR}\ndims = {{seq = 64}}",
            (),
            ["linear.onnx::b1-c1"],
            id="a dimension that does not vary does not",
        ),
        *(
            pytest.param(
                f'[tool.modelperf.models."models/{glob}.onnx"]\nbatch_size = 2',
                (),
                ["models/decoder.onnx::b2-c1", "models/encoder.onnx::b2-c1"],
                id=f"{glob} names several in the order of their names",
            )
            for glob in ("*", "**")
        ),
        pytest.param(
            '[tool.modelperf.models."models/*.onnx"]\nbatch_size = 2\n'
            f"{OF_ENCODER}\nbatch_size = 4",
            (),
            ["models/decoder.onnx::b2-c1", "models/encoder.onnx::b4-c1"],
            id="a path comes before a glob",
        ),
        *(
            pytest.param(
                f"{OF_ENCODER}\n[tool.pytest.ini_options]\ntestpaths = ['{testpaths}']",
                (),
                ENCODER_CASES[:1],
                id=f"a model that testpaths hold is collected once: {testpaths}",
            )
            for testpaths in (".", "models", "models/encoder.onnx")
        ),
    ],
)
def test_a_run_collects_what_tables_and_arguments_name(
    models: pytest.Pytester, table: str, arguments: tuple[str, ...], found: list[str]
) -> None:
    write_table(models, table)
    assert collected(models, *arguments) == found


def test_a_dimension_may_be_nothing(run: pytest.Pytester) -> None:
    """The cache of a model is empty when a text begins."""
    write_table(run, '[tool.modelperf.models."linear.onnx"]\ndims = {seq = 0}')
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)
    write_table(run, '[tool.modelperf.models."linear.onnx"]\ndims = {N = 0, seq = 1}')
    run.runpytest_inprocess(*STATIC).stdout.fnmatch_lines(["*'N' cannot be 0:*"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(
            '[tool.modelperf.models."models/*.onnx"]\n[tool.modelperf.models."models/enc*.onnx"]',
            "*models/encoder.onnx is named by *Make one of*",
            id="two globs of one model",
        ),
        pytest.param(
            f"{OF_LINEAR}\ndims = {{sq = 2}}",
            "*linear.onnx has no dimension 'sq'*",
            id="a dimension that a model does not have",
        ),
        pytest.param(
            '[tool.modelperf.models."dense.onnx"]\ninput_file = "nowhere.npz"',
            "*nowhere.npz*",
            id="an unknown file of inputs",
        ),
    ],
)
def test_a_table_that_does_not_fit_its_models_is_reported_at_collection(
    models: pytest.Pytester, table: str, message: str
) -> None:
    write_table(models, table)
    result = models.runpytest_inprocess(*STATIC)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines([message])
    assert_says_no_internals(result)


def test_a_model_of_a_table_need_not_be_in_testpaths(models: pytest.Pytester) -> None:
    folder = models.mkdir("tests")
    models.makepyfile(test_first="def test_one(): pass").rename(folder / "test_first.py")
    write_table(models, f'{ENCODER}\n    [tool.pytest.ini_options]\n    testpaths = ["tests"]')
    found = collected(models, "-k", "one or b1-c1")
    assert found == ["tests/test_first.py::test_one", "models/encoder.onnx::b1-c1"]


def test_a_folder_above_the_root_may_have_brackets_in_its_name(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = run.mkdir("of [us]")
    run.makepyfile(test_first="def test_one(): pass")
    run.mkdir(root / "tests")
    (run.path / "test_first.py").rename(root / "tests/test_first.py")
    write_dense(root / "dense.onnx")
    (root / "pyproject.toml").write_text(
        '[tool.modelperf.models."*.onnx"]\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    )
    monkeypatch.chdir(root)
    assert collected(run) == ["tests/test_first.py::test_one", "dense.onnx::b1-c1"]


# pytest takes what follows `::` or `[` in an argument for the name of a test.
CUT_NAMES = pytest.mark.parametrize("name", ["a[1].onnx", "a::b.onnx", "a::b[1].onnx", "a[::.onnx"])


@CUT_NAMES
@pytest.mark.parametrize("testpaths", ['["tests"]', '["tests", "."]'])
def test_a_model_of_a_table_that_pytest_cannot_be_given_is_collected(
    run: pytest.Pytester, name: str, testpaths: str
) -> None:
    write_dense(run.path / name)
    table = '[tool.modelperf.models."a*.onnx"]\n[tool.pytest.ini_options]\ntestpaths = '
    run.mkdir("tests")
    write_table(run, f"{table}{testpaths}")
    assert collected(run) == [f"{name}::b1-c1"]


@CUT_NAMES
@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_case_of_a_model_that_pytest_cannot_be_given_is_selected_by_its_id(
    run: pytest.Pytester,
    name: str,
    is_absolute: bool,  # noqa: FBT001  # a parameter
) -> None:
    for model in (name, "other.onnx"):
        write_dense(run.path / "[models]" / model)
    run.makepyfile(test_near="raise ValueError").rename(run.path / "[models]/test_near.py")
    write_table(run, '[tool.modelperf.models."*/*.onnx"]\nbatch_size = [1, 11]')
    folder = f"{run.path}/[models]" if is_absolute else "[models]"
    named = f"[models]/{name}"
    assert collected(run, f"{folder}/{name}::b1-c1") == [f"{named}::b1-c1"]
    assert collected(run, f"{folder}/{name}") == [f"{named}::b1-c1", f"{named}::b11-c1"]


def test_other_arguments_next_to_such_a_model_are_collected_as_usual(
    run: pytest.Pytester,
) -> None:
    write_dense(run.path / "m[int8].onnx")
    run.makepyfile(test_a="def test_1(): pass\ndef test_2(): pass", test_b="raise ValueError")
    found = collected(run, "m[int8].onnx", "test_a.py::test_1", "dense.onnx::b1-c1")
    assert sorted(found) == ["dense.onnx::b1-c1", "m[int8].onnx::b1-c1", "test_a.py::test_1"]


@pytest.mark.parametrize("model", ["m[int8].onnx", "models/encoder.onnx"])
def test_an_unknown_id_is_reported(models: pytest.Pytester, model: str) -> None:
    write_table(models, ENCODER)
    write_dense(models.path / "m[int8].onnx")
    result = models.runpytest_inprocess(*STATIC, f"{model}::b7-c1")
    assert_usage_error(result, f"ERROR: not found: *{model.replace('[', '[[]')}::b7-c1")


def test_the_command_that_accepts_a_case_of_such_a_model_records_it(run: pytest.Pytester) -> None:
    name = "m[int8].onnx"
    write_dense(run.path / name)
    run.runpytest_inprocess(*STATIC, "--modelperf-update-baseline", name).assert_outcomes(passed=1)
    write_dense(run.path / name, width=7)
    result = assert_ended(run.runpytest_inprocess(*STATIC, name), failed=1)
    printed = " ".join(line.strip(" \\") for line in result.outlines)
    (words,) = re.findall(r'accept: pytest (--modelperf .*?"[^"]*")', printed)
    run.runpytest_inprocess(*shlex.split(words)).assert_outcomes(passed=1)
    run.runpytest_inprocess(*STATIC, name).assert_outcomes(passed=1)


@pytest.mark.parametrize("name", ["dense.onnx", "models/*.onnx", "build/dense.onnx"])
def test_models_of_tables_do_not_keep_other_tests_from_being_collected(
    models: pytest.Pytester, name: str
) -> None:
    write_dense(models.path / "build/dense.onnx")
    write_table(models, f'[tool.modelperf.models."{name}"]')
    folder = models.path / "models"
    models.makepyfile(test_near="def test_one(): pass").rename(folder / "test_near.py")
    models.makepyfile(test_root="def test_two(): pass")
    tests = [test for test in collected(models) if ".py::" in test]
    assert tests == ["models/test_near.py::test_one", "test_root.py::test_two"]


def test_naming_a_test_does_not_collect_the_models_of_tables(models: pytest.Pytester) -> None:
    write_table(models, ENCODER)
    models.makepyfile(test_first="def test_one(): pass")
    assert collected(models, "test_first.py") == ["test_first.py::test_one"]


def test_a_run_in_a_folder_further_down_has_its_own_models(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(models, f'{OF_ENCODER}\n[tool.modelperf.models."dense.onnx"]')
    monkeypatch.chdir(models.path / "models")
    assert collected(models) == ["models/encoder.onnx::b1-c1"]


@pytest.mark.parametrize("arguments", [(), (".",), ("baselines",)])
def test_twins_of_baselines_are_found_by_no_glob(
    run: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    write_dense(run.path / "baselines/dense/twin.onnx")
    write_table(run, '[tool.modelperf.models."**/*.onnx"]')
    (run.path / "linear.onnx").unlink()
    result = run.runpytest_inprocess(*STATIC, "--collect-only", "-q", *arguments)
    found = [line for line in result.outlines if "::" in line]
    assert found == ([] if "baselines" in arguments else ["dense.onnx::b1-c1"])


def test_a_twin_is_collected_if_it_is_named(run: pytest.Pytester) -> None:
    write_dense(run.path / "baselines/dense/twin.onnx")
    twin = "baselines/dense/twin.onnx::b1-c1"
    assert collected(run, "baselines/dense/twin.onnx") == [twin]
    write_table(run, '[tool.modelperf.models."baselines/dense/twin.onnx"]')
    assert collected(run) == [twin]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("**/*.onnx", ["dense.onnx::b1-c1"]), ("build/*.onnx", ["build/dense.onnx::b1-c1"])],
)
def test_a_glob_finds_nothing_in_folders_that_pytest_skips_unless_it_names_them(
    run: pytest.Pytester, pattern: str, found: list[str]
) -> None:
    (run.path / "linear.onnx").unlink()
    for folder in ("build", ".venv/lib/onnx/test"):
        write_dense(run.path / folder / "dense.onnx")
    (run.path / "build/test_copied.py").write_text("def test_it(): pass")
    write_table(run, f'[tool.modelperf.models."{pattern}"]')
    assert collected(run) == found


@pytest.mark.parametrize("settings", ["", "[tool.pytest.ini_options]\ntestpaths = 'tests'\n"])
def test_a_glob_finds_nothing_that_pytest_ignores(models: pytest.Pytester, settings: str) -> None:
    (models.path / "linear.onnx").unlink()
    write_dense(models.path / "models/old.onnx")
    write_dense(models.path / "env/lib/onnx/dense.onnx")
    (models.path / "env/pyvenv.cfg").touch()
    models.mkdir("tests")
    write_table(models, f'{settings}[tool.modelperf.models."**/*.onnx"]')
    found = collected(models, "--ignore=models/old.onnx", "--ignore-glob=*/decoder*")
    assert found == ["dense.onnx::b1-c1", "models/encoder.onnx::b1-c1"]


@pytest.mark.parametrize("options", [(), STATIC])
def test_the_package_of_a_model_is_not_imported(
    run: pytest.Pytester, options: tuple[str, ...]
) -> None:
    model = write_dense(run.mkpydir("package") / "dense.onnx")
    model.with_name("__init__.py").write_text("import no_such_module")
    result = run.runpytest_inprocess(*options, "package/dense.onnx")
    result.assert_outcomes(**{"passed" if options else "skipped": 1})
    tree = run.runpytest_inprocess(*STATIC, "--collect-only", "package/dense.onnx")
    tree.stdout.fnmatch_lines(["*<Package package>", "*<OnnxFile dense.onnx>"])


def test_the_order_is_the_same_in_every_run(models: pytest.Pytester) -> None:
    """Workers of pytest-xdist must agree on it."""
    write_table(models, '[tool.modelperf.models."models/*.onnx"]\nbatch_size = [8, 1]')
    first = collected(models)
    assert first == collected(models)
    assert first[:2] == ["models/decoder.onnx::b8-c1", "models/decoder.onnx::b1-c1"]


@pytest.mark.parametrize("options", [(), STATIC])
def test_a_conftest_may_skip_models(run: pytest.Pytester, options: tuple[str, ...]) -> None:
    run.makeconftest("""
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.skip(reason="not today"))
        """)
    (run.path / "broken.onnx").write_bytes(b"no model")
    result = run.runpytest_inprocess(*options, "-rs", "dense.onnx", "broken.onnx")
    result.assert_outcomes(skipped=2)
    for name in ("dense", "broken"):
        result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] {name}.onnx: not today"])


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["-k", "b8"], ["b8-c1", "b8-c2"]),
        (["-k", "encoder and c2"], ["b1-c2", "b8-c2"]),
        (["-k", "decoder"], []),
        (["--deselect", "models/encoder.onnx::b1-c1"], ["b1-c2", "b8-c1", "b8-c2"]),
    ],
)
def test_cases_are_selected_by_name(
    models: pytest.Pytester, options: list[str], left: list[str]
) -> None:
    write_table(models, ENCODER)
    result = models.runpytest_inprocess(*STATIC, "--collect-only", "-q", *options)
    found = [line for line in result.outlines if "::" in line]
    assert found == [f"models/encoder.onnx::{case}" for case in left]


def test_last_failed_runs_the_failed_case_alone(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    write_table(models, '[tool.modelperf.models."models/*.onnx"]\nbudget = {macs = 16}')
    models.runpytest_inprocess(*STATIC).assert_outcomes(passed=1, failed=1)
    assert_ended(models.runpytest_inprocess(*STATIC, "--lf"), failed=1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            '[tool.modelperf.models."dense.onnx"]\nbatchsize = 2',
            "*there is no key 'batchsize'. Did you mean 'batch_size'?*",
        ),
        (
            '[tool.modelperf.models."dense.onnx"]\nbudget = {latency = 2}',
            "*there is no budget 'latency'. Did you mean 'latency_ms'?*",
        ),
        ('[tool.modelperf.models."dense.onnx"]\nbatch_size = 0', "*batch_size takes whole *not 0."),
        ("[tool.modelperf]\nstatic = true", "*there is no key 'static'. Did you mean *"),
        ("[tool.modelperf]\nbatch-sizes = [1]", "*a model has 'batch_size': write it below *"),
        ("[tool.modelperf]\ncores = 1", "*no key 'cores', but a model has 'cores': *"),
        ('[tool.modelperf."dense.onnx"]', "*A model has a table of its own*"),
        ('[tool.modelperf.models."/dense.onnx"]', "*give a path below the folder of the project*"),
    ],
)
def test_a_meaningless_table_is_one_line_that_names_its_place(
    run: pytest.Pytester, table: str, message: str
) -> None:
    write_table(run, table)
    result = run.runpytest_inprocess(*STATIC)
    assert_usage_error(result, f"ERROR: {message}")
    assert "tool.modelperf" in result.stderr.str()
    assert_says_no_internals(result)


def test_a_table_that_names_no_file_fails_one_test_of_its_own(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."model/*.onnx"]\n[tool.modelperf.models."dense.onnx"]')
    result = assert_ended(
        run.runpytest_inprocess(*STATIC, "-v"),
        "*pyproject.toml::model/[*].onnx[[]cases[]] FAILED*",
        '[[]tool.modelperf.models."model/[*].onnx"[]] names no file below *',
        failed=1,
        passed=1,
    )
    assert_says_no_internals(result)


def test_a_table_that_names_no_file_does_not_disturb_a_named_test(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."model/*.onnx"]')
    run_tests(run, "def test_other(): pass", *STATIC, ".").assert_outcomes(passed=1)


def test_a_model_whose_name_has_odd_characters_is_a_test_all_the_same(run: pytest.Pytester) -> None:
    write_dense(run.path / "odd name's & é.onnx")
    assert_ended(run.runpytest_inprocess(*STATIC, "-v", "odd name's & é.onnx"), passed=1)


def test_budgets_of_a_table_are_held(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbudget = {macs = 14, params = 15}')
    assert_ended(run.runpytest_inprocess(*STATIC), "over budget: *MACs*", failed=1)


def test_the_file_of_inputs_of_a_table_is_below_the_root(run: pytest.Pytester) -> None:
    import numpy as np

    np.savez(run.mkdir("arrays") / "x.npz", x=np.ones((4, 3), np.float32))
    write_table(run, '[tool.modelperf.models."dense.onnx"]\ninput_file = "arrays/x.npz"')
    assert collected(run) == ["dense.onnx::b4-c1"]


@pytest.mark.slow
def test_a_model_outside_of_the_root_has_no_table_of_its_name(
    run: pytest.Pytester, tmp_path: Path
) -> None:
    outside = write_dense(tmp_path / "dense.onnx")
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbaseline = "inner.onnx"')
    options = (*STATIC, "--rootdir=.", "--modelperf-update-baseline")
    result = run.runpytest_inprocess(*options, str(outside))
    assert_ended(result, "*dense.onnx is not below *, the root of this run, *", failed=1)
    assert not (run.path / "baselines").exists()


def test_a_model_named_through_a_link_to_the_root_has_its_table(
    run: pytest.Pytester, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.path, target_is_directory=True)
    table = '[tool.modelperf.models."dense.onnx"]\nbaseline = "dense.onnx"'
    write_table(run, f"{table}\nbudget = {{macs = 14}}")
    result = run.runpytest_inprocess(*STATIC, "--rootdir=.", str(link / "dense.onnx"))
    assert_ended(result, "over budget: MACs 15, limit 14", failed=1)


def test_a_model_of_two_roots_is_found_by_the_table_of_the_root(run: pytest.Pytester) -> None:
    outside = write_linear(run.path.parent / "outside.onnx")
    write_table(run, '[tool.modelperf.models."outside.onnx"]\ndims = {seq = 2}')
    result = run.runpytest_inprocess(*STATIC, str(outside))
    assert result.ret != pytest.ExitCode.OK
    assert_says_no_internals(result)


def write_marked(run: pytest.Pytester, model: str, words: str = "") -> None:
    """A test in a folder of its own, of a model that a table names too."""
    write_table(run, '[tool.modelperf.models."models/encoder.onnx"]')
    file = run.mkdir("tests") / "test_marked.py"
    marker = f"@pytest.mark.perf_case({model!r}{words})"
    file.write_text(f"import pytest\n{marker}\ndef test_it(): pass\n", "utf-8")


@pytest.mark.parametrize("model", ["models/encoder.onnx", "../models/encoder.onnx"])
def test_two_tests_of_one_case_may_write_its_path_in_two_ways(
    models: pytest.Pytester, model: str
) -> None:
    write_marked(models, model)
    models.runpytest_inprocess(*STATIC).assert_outcomes(passed=2)


def test_two_tests_whose_cases_differ_in_more_than_their_ids_are_refused(
    models: pytest.Pytester,
) -> None:
    write_marked(models, "models/encoder.onnx", ", inputs='x:f32:1x3'")
    result = models.runpytest_inprocess(*STATIC)
    assert_usage_error(result, "*have the case b1-c1 of the baseline models/encoder.onnx, but*")
