"""Cases that run through a gateway: on which machine, by which setting, and what goes wrong."""

from __future__ import annotations

import sys

import pytest

from pytest_modelperf.profiler.machine.describe import describe_machine
from tests.support.project import assert_ended, assert_says_no_internals, read_json, write_table
from tests.support.ssh import put_in_place_of_ssh
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, test_of

BOARD = f"ssh=board//python={sys.executable}"
TABLE = f"""
    [tool.modelperf.machines]
    board = "{BOARD}"
    """


@pytest.fixture
def models(models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Models, and a program in the place of ssh."""
    put_in_place_of_ssh(models.mkdir("bin"), monkeypatch)
    return models


def measured(run: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    run.makepyfile(source)
    return run.runpytest_inprocess(*TIMED, JSON, *options)


def engines_of(run: pytest.Pytester) -> list[str]:
    return [case["engine"] for case in cases_of(run)]


def other_python(run: pytest.Pytester, version: str) -> str:
    """A gateway to a Python in which the engine has another version."""
    python = run.path / f"python-{version}"
    python.write_text(f'#!/bin/sh\nTIMED_VERSION={version} exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return f"popen//python={python}"


@pytest.mark.slow
def test_a_baseline_is_kept_under_the_key_of_the_board(models: pytest.Pytester) -> None:
    write_table(models, TABLE)
    gateway = "--modelperf-gateway=board"
    first = measured(models, test_of("base.onnx", baseline="base.onnx"), gateway, UPDATE)
    assert_ended(first, "modelperf: *, through board*", passed=1)
    (file,) = [
        path for path in (models.path / "baselines" / "base").glob("*.json")
        if path.name != "model.json"
    ]  # fmt: skip
    # Without this package, the board knows its processor by its full name alone.
    assert file.stem != describe_machine().key
    assert read_json(models.path / "run.json")["machine"]["key"] == file.stem
    stored = read_json(models.path / "baselines" / "base" / "model.json")
    assert stored["cases"]["b1-c1"]["provenance"]["machine"] == file.stem
    second = assert_ended(measured(models, test_of("slow_400us.onnx"), gateway), failed=1)
    (case,) = cases_of(models)
    assert case["verdict"] == "regressed"
    assert any("as when it was recorded" in note for note in case["notes"])
    assert_says_no_internals(second)
    second.stdout.fnmatch_lines(["*--modelperf-gateway=board*"])


@pytest.mark.slow
def test_the_nearest_setting_says_where_a_case_runs(models: pytest.Pytester) -> None:
    pythons = {name: other_python(models, name) for name in ("7", "8", "9")}
    source = f"""
        [tool.modelperf]
        gateway = "seven"
        machines.seven = "{pythons["7"]}"
        [tool.modelperf.models."base.onnx"]
        [tool.modelperf.models."equal_200us.onnx"]
        gateway = "{pythons["8"]}"
    """
    write_table(models, source)
    run = ("base.onnx", "equal_200us.onnx", *TIMED, JSON)
    models.runpytest_inprocess(*run)
    assert engines_of(models) == ["timed 7", "timed 8"]
    models.runpytest_inprocess(*run, f"--modelperf-gateway={pythons['9']}")
    assert engines_of(models) == ["timed 9", "timed 9"]


def test_a_marker_names_a_gateway(models: pytest.Pytester) -> None:
    measured(models, test_of("base.onnx", gateway=other_python(models, "5")))
    assert engines_of(models) == ["timed 5"]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("", ["--modelperf-gateway=other"], "there is no machine 'other'"),
        ("gateway = 'bord'", [], "there is no machine 'bord'. Did you mean 'board'?"),
        ("machines.b = 'shs=board'", [], "unknown key 'shs'"),
        ("machines.b = 'board'", [], "b takes a gateway such as ssh="),
        ("static_only = true", ["--modelperf-gateway=ssh=a"], "would have no effect"),
    ],
)
def test_a_wrong_gateway_is_reported_before_anything_runs(
    models: pytest.Pytester, table: str, options: list[str], message: str
) -> None:
    write_table(models, f"[tool.modelperf]\nmachines.board = 'ssh=board'\n{table}\n")
    result = models.runpytest_inprocess(*TIMED, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_a_marker_that_names_no_machine_fails_its_test(models: pytest.Pytester) -> None:
    result = measured(models, test_of("base.onnx", gateway="bord"))
    assert_ended(result, "*there is no machine 'bord'.*", failed=1)
    assert_says_no_internals(result)


def test_a_board_that_does_not_answer_gives_no_verdict(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_ssh(models.mkdir("lost"), monkeypatch, "exit 255")
    write_table(models, TABLE)
    source = test_of("base.onnx", gateway="board")
    result = measured(models, f"{source}\n        def test_next():\n            pass\n")
    result.assert_outcomes(passed=1, failed=1)
    (case,) = cases_of(models)
    assert "the gateway 'ssh=board" in case["failure"]
    assert "cannot be reached" in case["failure"]


def test_a_python_of_the_baseline_does_not_go_with_a_board(models: pytest.Pytester) -> None:
    measured(models, test_of("base.onnx"), UPDATE)
    option = f"--modelperf-baseline-python={sys.executable}"
    result = measured(models, test_of("base.onnx", gateway=BOARD), option)
    assert_ended(result, "*is a Python of this machine, and the case runs through ssh=*", failed=1)


def test_a_function_of_this_process_runs_through_no_gateway(models: pytest.Pytester) -> None:
    source = """
        def test_it(modelperf):
            assert modelperf(lambda: None, gateway="ssh=board").latency.p50_ms
    """
    result = measured(models, source)
    assert_ended(result, "*exists only in this process, and cannot run through the*", failed=1)
