"""The pytest plugin: its options and markers, and the run that it starts with `--modelperf`.

Every pytest run of every user loads it, so it imports only what a run without `--modelperf` needs.
It has few names of its own, because pytest checks each of them for hooks and fixtures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.fixtures import _modelperf_case, modelperf
from pytest_modelperf.programs.station.current import station_of
from pytest_modelperf.testing import current_run, startup

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_modelperf.testing.items import OnnxFile

__all__ = ["_modelperf_case", "modelperf"]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config = pluginmanager.get_plugin("pytestconfig")
    if config is not None:
        startup.check_mode(config.invocation_params.args)
    startup.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for line in startup.MARKERS:
        config.addinivalue_line("markers", line)
    if config.getoption(startup.FLAG):
        # Imported here, so that only a run that profiles spends time on it.
        from pytest_modelperf.testing.pytest_internals import lack_of_memory_told

        with lack_of_memory_told(lambda error: pytest.UsageError(error.message)):
            from pytest_modelperf.testing.starting import start

            start(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return startup.missed_line(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    line = startup.missed_line(config)
    if line is not None:
        terminalreporter.write_line(line, yellow=True)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> OnnxFile | None:
    """Skip a model that is named on the command line if the run profiles none."""
    if file_path.suffix not in startup.SUFFIXES or current_run.run_of(parent.config) is not None:
        return None
    if all(path != file_path for path, _ in startup.named_tests(parent.config)):
        return None
    from pytest_modelperf.testing.items import OnnxFile

    return OnnxFile.from_parent(parent, path=file_path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    is_idle = current_run.run_of(item.config) is None and station_of(item.config) is None
    if is_idle and startup.has_markers(item):
        pytest.skip(startup.SWITCHED_OFF)
