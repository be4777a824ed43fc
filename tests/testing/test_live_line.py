"""The line that moves while a model is measured: on a terminal only, and gone when a test ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from pytest_modelperf.profiler.worker.lock import measuring_alone
from tests.support.project import run_tests
from tests.support.timed_models import TIMED, test_of

pytestmark = pytest.mark.slow

pty = pytest.importorskip("pty", reason="needs a terminal as Unix has them")

# The cursor is saved, the rest of the line written again and cleared, and the cursor put back.
DRAWN = re.compile(r"\x1b7(.*?)\x1b\[K\x1b8", re.DOTALL)


@pytest.fixture
def models(models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("TERM", "xterm")
    # There has to be room after the name of the test file.
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return models


def on_terminal(models: pytest.Pytester, source: str, *options: str) -> str:
    """All that a run writes to a terminal."""
    models.makepyfile(source)
    command = (sys.executable, "-m", "pytest", *TIMED, "--modelperf-max-seconds=0.3", *options)
    inner, outer = pty.openpty()
    with subprocess.Popen(command, cwd=models.path, stdout=outer, stderr=outer) as process:
        os.close(outer)
        written = b""
        while part := _read(inner):
            written += part
    os.close(inner)
    assert process.returncode in {0, 1, 2}
    return written.decode("utf-8")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux ends a terminal without writers with this error.
        return b""


@pytest.mark.parametrize("options", [(), ("-v",), ("--capture=sys",)])
def test_progress_is_drawn_while_a_model_is_measured_and_taken_back(
    models: pytest.Pytester, options: tuple[str, ...]
) -> None:
    text = on_terminal(models, test_of("base.onnx"), *options)
    drawn = DRAWN.findall(text)
    assert drawn[0] == " [1/1] b1-c1  starting"
    assert drawn[-1] == ""
    left = DRAWN.sub("", text)
    assert "[1/1]" not in left
    assert "\x1b7" not in left


def test_a_line_is_never_as_long_as_the_terminal_is_wide(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = on_terminal(models, test_of("base.onnx"))
    begin = len("test_a_line_is_never_as_long_as_the_terminal_is_wide.py ")
    assert all(begin + len(line) < 60 for line in DRAWN.findall(text))
    monkeypatch.setenv("COLUMNS", "120")
    text = on_terminal(models, test_of("base.onnx"))
    assert any(DRAWN.findall(text))
    assert all(begin + len(line) < 120 for line in DRAWN.findall(text))


def test_a_terminal_of_ascii_can_be_drawn_on(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    models.makeconftest("""
        from pytest_modelperf.testing.pytest_internals import write_unseen

        def pytest_runtest_logstart(nodeid):
            write_unseen(config, "1.20 \u00b1 0.10 ms")

        def pytest_configure(config):
            globals()["config"] = config
    """)
    text = on_terminal(models, "def test_it(): pass")
    assert "1.20 +-0.10 ms" in text
    assert "1 passed" in text


def test_the_progress_line_does_not_belong_to_the_output_of_the_test(
    models: pytest.Pytester,
) -> None:
    body = """
        def test_it(modelperf):
            modelperf("base.onnx").latency
            print("a word of the test")
            raise AssertionError
    """
    text = on_terminal(models, body)
    assert any(DRAWN.findall(text))
    captured = text.partition("Captured stdout call")[2].partition("=== ")[0]
    assert captured.replace("-", "").split("\r\n")[1] == "a word of the test"
    assert "[1/1]" not in captured


def test_an_interrupt_takes_it_back(models: pytest.Pytester) -> None:
    body = """
        def test_it(modelperf):
            modelperf("base.onnx").latency
            raise KeyboardInterrupt
    """
    drawn = DRAWN.findall(on_terminal(models, body))
    assert any(drawn)
    assert drawn[-1] == ""


@pytest.mark.parametrize("options", [("-q",), ("-s",), ("-p", "no:capture")])
def test_nothing_is_drawn_in_a_quiet_run_or_with_output_of_tests(
    models: pytest.Pytester, options: tuple[str, ...]
) -> None:
    assert "\x1b7" not in on_terminal(models, test_of("base.onnx"), *options)


@pytest.mark.parametrize("options", [(), ("-v",), ("-q",), ("-s",)])
def test_without_a_progress_line_a_wait_for_another_measurement_is_reported(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    models.makepyfile(test_of("base.onnx"))
    with ThreadPoolExecutor(1) as elsewhere, ExitStack() as held:
        elsewhere.submit(held.enter_context, measuring_alone()).result()
        # The first to sleep is who waits.
        monkeypatch.setattr(time, "sleep", lambda _: elsewhere.submit(held.close).result())
        result = models.runpytest_inprocess(*TIMED, "--modelperf-max-seconds=0.3", *options)
    result.assert_outcomes(passed=1)
    line_form = re.compile(r"b1-c1: waiting for .+ to end measuring, 60 min at most")
    assert len([line for line in result.outlines if line_form.fullmatch(line)]) == 1


SLOW = """
    from pytest_modelperf.profiler.measurements import Progress
    from pytest_modelperf.testing.terminal import LiveLine

    def pytest_runtest_call(item):
        line = LiveLine(item.config.pluginmanager.get_plugin("terminalreporter"), item.config)
        for seconds_left in (58.4, 9.0):
            line(
                Progress(
                    case_id="b1-c1",
                    case_number=1,
                    cases=1,
                    step="measure",
                    round=1,
                    least_seconds=21.7,
                    seconds_left=seconds_left,
                )
            )
"""


def test_without_a_progress_line_the_duration_of_slow_rounds_is_reported(
    run: pytest.Pytester,
) -> None:
    run.makeconftest(SLOW)
    result = run_tests(run, "def test_it(): pass")
    lines = [line for line in result.outlines if line.startswith("b1-c1")]
    assert [line.endswith(" 22 to 58 s") for line in lines] == [True]


def test_nothing_is_drawn_without_a_terminal(models: pytest.Pytester) -> None:
    models.makepyfile(test_of("base.onnx"))
    result = models.runpytest_subprocess(*TIMED, "--modelperf-max-seconds=0.3")
    assert "\x1b7" not in result.stdout.str()


def test_nothing_is_drawn_without_the_plugin_of_the_terminal(run: pytest.Pytester) -> None:
    """A cluster draws on it without asking."""
    run.makeconftest("""
        from pytest_modelperf.testing.terminal import LiveLine

        def pytest_runtest_call(item):
            LiveLine(None, item.config).draw(str)
        """)
    run.makepyfile("def test_it(): pass")
    assert run.runpytest_inprocess("-p", "no:terminal").ret == pytest.ExitCode.OK
