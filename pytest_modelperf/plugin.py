"""The pytest plugin: its options and markers, and the run that it starts when asked to.

Every pytest run of every user loads it, so it imports only what a run without `--modelperf` needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.fixtures import _modelperf_case, modelperf
from pytest_modelperf.testing.current_run import run_of
from pytest_modelperf.testing.names import FLAG, SUFFIX, SWITCHED_OFF, has_markers, named_tests
from pytest_modelperf.testing.pytest_options import add_options, check_mode, missed_options

if TYPE_CHECKING:
    from pytest_modelperf.testing.items import OnnxFile

__all__ = ["_modelperf_case", "modelperf"]

_MARKERS = """
perf_case(model, batch_size=1, cores=1, dims={}, ...): run the test once for each case of an ONNX \
model, and hold it against its baseline
perf_budget(latency_ms=..., p99_ms=..., macs=..., flops=..., params=..., ...): what the \
cases of the test may cost
"""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config = pluginmanager.get_plugin("pytestconfig")
    if config is not None:
        check_mode(config.invocation_params.args)
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKERS.strip().splitlines():
        config.addinivalue_line("markers", line)
    if config.getoption(FLAG):
        # Imported here: only a run that profiles pays for it.
        from pytest_modelperf.testing.hooks import start

        start(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return _missed(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    line = _missed(config)
    if line is not None:
        terminalreporter.write_line(line, yellow=True)


def _missed(config: pytest.Config) -> str | None:
    """A line that names the options without effect; None if models are profiled.

    It is no error: `addopts` may hold them.
    """
    missed = [] if config.getoption(FLAG) else missed_options(config)
    if not missed:
        return None
    does = "does" if len(missed) == 1 else "do"
    flags = ", ".join(missed)
    return f"modelperf: without --modelperf no model is profiled, so {flags} {does} nothing"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> OnnxFile | None:
    """Make a named model a skipped test in a run that profiles none."""
    if file_path.suffix != SUFFIX or run_of(parent.config) is not None:
        return None
    if all(path != file_path for path, _ in named_tests(parent.config)):
        return None
    from pytest_modelperf.testing.items import OnnxFile

    return OnnxFile.from_parent(parent, path=file_path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if run_of(item.config) is None and has_markers(item):
        pytest.skip(SWITCHED_OFF)
