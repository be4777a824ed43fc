"""Options of the command line, ini keys of pytest and keys of `[tool.modelperf]`, end to end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, Setting
from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    assert_usage_error,
    write_table,
)

IN_FILES = tuple(option for option in RUN_SETTINGS if option.is_in_files)
# A text that each option takes, and what a table would hold of it.
SAMPLES: dict[str, tuple[str, str]] = {
    "tolerance": ("p50=0.02", '"p50=0.02"'),
    "measure": ("always", '"always"'),
    "output_sketch": ("true", "true"),
    "max_seconds": ("7", "7"),
    "warmup_seconds": ("2", "2"),
    "min_seconds": ("3", "3"),
    "timeout": ("8", "8"),
    "engine": ("onnxruntime", '"onnxruntime"'),
    "engine_option": ("a=b", '{a = "b"}'),
    "gateway": ("ssh=a", '"ssh=a"'),
    "static_only": ("true", "true"),
    "against": ("dense.onnx", '"dense.onnx"'),
    "baseline_python": ("python3", '"python3"'),
    "baseline_requirement": ("onnxruntime==1.22.0", '["onnxruntime==1.22.0"]'),
    "judge_engine_upgrades": ("true", "true"),
    "baseline_dir": ("kept", '"kept"'),
    "uncommitted": ("true", "true"),
    "strict": ("true", "true"),
    "no_cache": ("true", "true"),
    "json": ("run.json", '"run.json"'),
    "markdown": ("run.md", '"run.md"'),
    "html": ("run.html", '"run.html"'),
    "benchmark_json": ("bench.json", '"bench.json"'),
    "bencher_json": ("bencher.json", '"bencher.json"'),
    "history": ("history", '"history"'),
    "trace": ("traces", '"traces"'),
    "cluster": ("local:2", '"local:2"'),
    "machine": ("board,quiet", '["board", "quiet"]'),
}
# Options that an option needs to have an effect.
NEEDS = {"machine": ["--modelperf-cluster=local:3"]}
SHOWS_SETTINGS = """
    from pytest_modelperf.testing.current_run import run_of

    def pytest_collection_finish(session):
        s = run_of(session.config).settings
        print("settings:", s.tolerances.of(50.0), s.measure, s.output_sketch, s.max_seconds,
              s.warmup_seconds, s.min_seconds, s.timeout, s.engine, dict(s.engine_options),
              s.gateway, s.static_only, s.against, s.baseline_python, s.baseline_requirements,
              s.judge_engine_upgrades, s.baseline_dir.name, s.uncommitted, s.strict, s.no_cache,
              s.json, s.markdown, s.html, s.benchmark_json, s.bencher_json, s.history, s.trace,
              s.cluster, s.machine)
"""


def settings_of(run: pytest.Pytester, *arguments: str) -> str:
    """All settings of a run as one line."""
    result = run.runpytest_inprocess("--modelperf", "--collect-only", "-s", *arguments)
    (line,) = [line for line in result.outlines if "settings: " in line]
    return line.partition("settings: ")[2]


def run_static(run: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run.runpytest_inprocess(*STATIC, *arguments)


def test_there_is_a_sample_of_every_option() -> None:
    assert list(SAMPLES) == [option.key for option in IN_FILES]


@pytest.mark.slow
@pytest.mark.parametrize("option", IN_FILES, ids=lambda option: option.key)
def test_an_option_an_ini_key_and_a_key_of_the_table_say_the_same(
    run: pytest.Pytester, option: Setting
) -> None:
    run.makeconftest(SHOWS_SETTINGS)
    text, value = SAMPLES[option.key]
    if option.key == "engine":
        text, value = "callable", '"callable"'
    needs = NEEDS.get(option.key, [])
    usual = settings_of(run, *needs)
    typed = settings_of(run, *needs, option.flag, *([] if option.metavar is None else [text]))
    assert typed != usual
    (run.path / "pytest.ini").write_text(f"[pytest]\n{option.ini} = {text}\n")
    assert settings_of(run, *needs) == typed
    (run.path / "pytest.ini").unlink()
    write_table(run, f"[tool.modelperf]\n{option.table_key} = {value}\n")
    assert settings_of(run, *needs) == typed


def test_a_typed_option_comes_before_the_ini_key_and_that_before_the_table(
    run: pytest.Pytester,
) -> None:
    (run.path / "pytest.ini").write_text("[pytest]\nmodelperf_tolerance = 0.05\n")
    write_table(run, "[tool.modelperf]\ntolerance = 0.07\nbaseline_dir = 'kept'\n")
    header = "modelperf: baselines in kept, {} % allowed"
    run.runpytest_inprocess("--modelperf").stdout.fnmatch_lines([header.format(5)])
    typed = run.runpytest_inprocess("--modelperf", "--modelperf-tolerance", "1 %")
    typed.stdout.fnmatch_lines([header.format(1)])
    (run.path / "pytest.ini").write_text("[pytest]\n")
    run.runpytest_inprocess("--modelperf").stdout.fnmatch_lines([header.format(7)])


def test_ini_keys_may_be_in_pyproject_or_on_the_command_line(run: pytest.Pytester) -> None:
    given = run.runpytest_inprocess("--modelperf", "-o", "modelperf_static_only=true")
    given.stdout.fnmatch_lines(["modelperf: *static figures only"])
    write_table(run, "[tool.pytest.ini_options]\nmodelperf_static_only = true\n")
    result = run.runpytest_inprocess("--modelperf", "dense.onnx")
    assert_ended(result, "modelperf: *static figures only", passed=1)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest has such tables since version 9")
def test_ini_keys_of_a_table_of_pytest_have_the_types_of_toml(run: pytest.Pytester) -> None:
    source = """
        [tool.pytest]
        modelperf_strict = true
        modelperf_tolerance = 0.07
        modelperf_max_seconds = 5
        modelperf_engine_option = {graph_optimization_level = "basic"}
    """
    write_table(run, source)
    result = run.runpytest_inprocess("--modelperf", "--collect-only", "dense.onnx")
    result.stdout.fnmatch_lines(["modelperf: baselines in baselines, 7 % allowed, strict"])
    overridden = ("-o", "modelperf_tolerance=0.08")
    result = run.runpytest_inprocess("--modelperf", "--collect-only", *overridden)
    result.stdout.fnmatch_lines(["modelperf: *8 % allowed*"])
    write_table(run, "[tool.pytest]\nmodelperf_strict = 5\n")
    result = run.runpytest_inprocess("--modelperf")
    assert_usage_error(result, "ERROR: the ini key modelperf_strict takes true or false, not 5.")


def test_a_flag_of_a_file_that_says_false_says_nothing(run: pytest.Pytester) -> None:
    (run.path / "pytest.ini").write_text("[pytest]\nmodelperf_strict = no\n")
    run_static(run, "dense.onnx").assert_outcomes(passed=1)
    (run.path / "pytest.ini").write_text("[pytest]\nmodelperf_strict = yes\n")
    run_static(run, "dense.onnx").assert_outcomes(failed=1)


def test_baselines_are_in_the_chosen_folder(run: pytest.Pytester) -> None:
    record = ("--modelperf-update-baseline", "dense.onnx")
    run_static(run, *record, "--modelperf-baseline-dir", "kept").assert_outcomes(passed=1)
    assert (run.path / "kept/dense/model.json").is_file()
    assert not (run.path / "baselines").exists()
    write_table(run, '[tool.modelperf]\nbaseline_dir = "kept"')
    assert_ended(run_static(run, "--modelperf-strict", "dense.onnx"), passed=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modelperf-tolerance", "3"], "--modelperf-tolerance takes a share such as 0.03*"),
        (["--modelperf-max-seconds", "soon"], "--modelperf-max-seconds takes seconds above 0*"),
        (["--modelperf-timeout=1e300"], "--modelperf-timeout takes *within a year*"),
        (["--modelperf-timeout=0"], "--modelperf-timeout takes seconds above 0*"),
        (["--modelperf-engine-option", "a"], "--modelperf-engine-option takes KEY=VALUE*"),
        (["--modelperf-json", "-"], "--modelperf-json takes a file: standard output has *"),
        (["--modelperf-markdown", "-"], "--modelperf-markdown takes a file: standard output *"),
        (["--modelperf-html", "-"], "--modelperf-html takes a file: standard output has *"),
        (["--modelperf-benchmark-json", "-"], "--modelperf-benchmark-json takes a file: *"),
        (["--modelperf-bencher-json", "-"], "--modelperf-bencher-json takes a file: *"),
        (
            ["--modelperf-json", "no/run.json"],
            "--modelperf-json: cannot write *no/run.json: *mkdir*",
        ),
        (["--modelperf-json", "."], "--modelperf-json: cannot write *: Is a directory.*"),
        (["--modelperf-json=/dev/stdout"], "--modelperf-json takes a file*"),
        (["--modelperf-markdown", "."], "--modelperf-markdown: cannot write *: Is a directory.*"),
        (["--modelperf-html", "no/run.html"], "--modelperf-html: cannot write *run.html*mkdir -p*"),
        (["--modelperf-html", "x" * 300], "--modelperf-html: cannot write *: File name too long.*"),
        (
            ["--modelperf-history", "x" * 300],
            "no history can be written in *: * is not a folder, or cannot be written. *",
        ),
        (["--modelperf-against", "nowhere.onnx"], "*nowhere.onnx*"),
        (["--modelperf-baseline-python=python3"], "*would have no effect: with *-static-only *"),
        (["--modelperf-judge-upgrades"], "*would have no effect: with *-static-only *"),
        (["-o", "modelperf_strict=perhaps"], "the ini key modelperf_strict takes true or false*"),
        (["-o", "modelperf_tolerence=1"], "*'modelperf_tolerence'. Did you mean modelperf_tole*"),
        (
            ["-o", "modelperf_prune=true"],
            "the ini key modelperf_prune can only be given on the command line*",
        ),
        (
            ["--modelperf-update-baseline=newest"],
            "--modelperf-update-baseline *all, new *'newest'*",
        ),
        # A mode given as a separate argument is a path.
        (["--modelperf-update-baseline", "new"], "file or directory not found: new"),
    ],
)
def test_a_setting_that_means_nothing_is_one_line(
    run: pytest.Pytester, arguments: list[str], message: str
) -> None:
    assert_usage_error(run_static(run, *arguments, "dense.onnx"), f"ERROR: {message}")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("requirement=onnxruntime 1.22", "the requirement 'onnxruntime 1.22' cannot be read: *"),
        ("requirement=onnxruntime @ https://host/a.whl", "the requirement * names an address, *"),
        ("requirement=recorded", None),
        ("python=no/python", "--modelperf-baseline-python names no/python, *"),
    ],
)
def test_an_impossible_python_of_a_baseline_is_reported_before_anything_runs(
    run: pytest.Pytester, option: str, message: str | None
) -> None:
    given = ("--modelperf", "--collect-only", f"--modelperf-baseline-{option}", "dense.onnx")
    result = run.runpytest_inprocess(*given)
    if message is None:
        assert result.ret == pytest.ExitCode.OK
        return
    assert_usage_error(result, f"ERROR: {message}")


def test_a_page_needs_an_extra_and_says_so_before_anything_runs(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = run_static(run, "--modelperf-html=run.html", "dense.onnx")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    install = "pip install 'pytest-modelperf[[]report]'"
    result.stderr.fnmatch_lines([f"ERROR: --modelperf-html needs plotly and jinja2: {install}"])
    assert_says_no_internals(result)


@pytest.mark.parametrize("key", ["update_baseline", "prune"])
def test_no_file_may_say_that_baselines_are_changed(run: pytest.Pytester, key: str) -> None:
    write_table(run, f"[tool.modelperf]\n{key} = true")
    result = run_static(run, "dense.onnx")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    option = f"--modelperf-{key.replace('_', '-')}"
    command = f"pytest --modelperf {option}"
    result.stderr.fnmatch_lines(
        [f"ERROR: *{key} can only be given on the command line, *: {command}"]
    )


def test_a_broken_pyproject_is_reported(run: pytest.Pytester) -> None:
    (run.path / "pytest.ini").write_text("[pytest]\n")
    write_table(run, "[tool.modelperf\n")
    assert_usage_error(run_static(run, "dense.onnx"), "ERROR: *pyproject.toml*")


def test_the_error_of_an_unknown_engine_lists_those_there_are(run: pytest.Pytester) -> None:
    result = run.runpytest_inprocess("--modelperf", "--modelperf-engine=onnxrun", "dense.onnx")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*onnxrun*onnxruntime*"])
    assert_says_no_internals(result)


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (["--modelperf-update-baseline", "test_it.py"], "all"),
        (["test_it.py", "--modelperf-update-baseline"], "all"),
        (["--modelperf-update-baseline=all", "test_it.py"], "all"),
        (["--modelperf-update-baseline=new", "test_it.py"], "new"),
        (["--modelperf-update-baseline=improved", "test_it.py"], "improved"),
    ],
)
def test_the_option_that_records_leaves_the_path_behind_it_alone(
    run: pytest.Pytester, arguments: list[str], mode: str
) -> None:
    run.makepyfile(test_it="def test_one(): pass", test_other="def test_two(): pass")
    assert_ended(run_static(run, *arguments), f"modelperf: *updating {mode}", passed=1)


def test_a_mode_of_a_file_of_settings_that_is_none_names_those_there_are(
    run: pytest.Pytester,
) -> None:
    run.makeini("[pytest]\naddopts = --modelperf-update-baseline=newest")
    assert_usage_error(run_static(run), "*--modelperf-update-baseline=all|new|improved*'newest'*")


@pytest.mark.parametrize("option", RUN_SETTINGS, ids=lambda option: option.key)
def test_options_of_ours_disturb_no_run_without_the_switch(
    run: pytest.Pytester, option: Setting
) -> None:
    run.makepyfile("def test_other(): pass")
    text = SAMPLES.get(option.key, ("", ""))[0]
    arguments = [option.flag] if option.metavar is None or not text else [option.flag, text]
    result = assert_ended(run.runpytest_inprocess(*arguments), passed=1)
    notes = [line for line in result.outlines if line.startswith("modelperf: ")]
    # In the header and in the summary, where its effect is looked for.
    line = f"modelperf: without --modelperf no model is profiled, so {option.flag} does nothing"
    assert notes == ([line, line] if option.has_result else [])
    assert not Path(run.path / "run.json").exists()


def test_the_options_that_do_nothing_are_reported_in_quiet_runs_too(run: pytest.Pytester) -> None:
    run.makepyfile("def test_other(): pass")
    run.makeini("[pytest]\naddopts = --modelperf-strict --modelperf-json=run.json")
    result = run.runpytest_inprocess("-q")
    assert_ended(result, "*, so --modelperf-strict, --modelperf-json do nothing", passed=1)
    result.stdout.no_fnmatch_line("*Traceback*")
    run_static(run, "dense.onnx").stdout.no_fnmatch_line("*do nothing*")


def test_an_unknown_ini_key_disturbs_no_run_without_the_switch(run: pytest.Pytester) -> None:
    run.makepyfile("def test_other(): pass")
    run.runpytest_inprocess("-o", "modelperf_strict=perhaps").assert_outcomes(passed=1)


def test_a_shortened_option_is_refused(run: pytest.Pytester) -> None:
    """An option that is added later must not change what one means that is typed today."""
    assert run.runpytest_inprocess("--modelperf-stat").ret == pytest.ExitCode.USAGE_ERROR


def test_the_help_has_each_option_once_in_a_group_of_its_own_and_lists_every_ini_key(
    run: pytest.Pytester,
) -> None:
    lines = run.runpytest_inprocess("--help").outlines
    begin = lines.index("performance of ONNX models:")
    group = lines[begin + 1 : lines.index("", begin)]
    named = [line.split()[0] for line in group if line.startswith("  --")]
    assert named[0] == "--modelperf"
    flags = {name.rstrip(",").partition("=")[0] for name in named[1:]}
    assert flags == {option.flag for option in RUN_SETTINGS}
    assert max(map(len, group)) <= 80
    text = "\n".join(lines)
    assert "%%" not in text
    assert [option.ini for option in IN_FILES if f"\n  {option.ini} (" not in text] == []
