"""Begin a station: take its streams, set its import paths, and run pytest for one test."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Any

import pytest
from _pytest.config import Config  # pytest has no public name for the way that xdist uses

from pytest_modelperf.programs import messages
from pytest_modelperf.programs.station.callee import failure_text, last_lines
from pytest_modelperf.programs.station.current import STATION
from pytest_modelperf.programs.station.served import Pipe, Reads, ServedTest
from pytest_modelperf.programs.trees import SideFinder, SideTree
from pytest_modelperf.systems.process import OWN_PROCESS
from pytest_modelperf.tracing.first_import import when_imported

_PYTHONPATH = "PYTHONPATH"


def main() -> None:
    orders, answers = _take_streams()
    begin = messages.read_message(orders, messages.BEGINNINGS)
    if begin is None:
        # The parent process has ended.
        return
    place = begin.place
    tree = SideTree(place.tree, place.worktree)
    _set_import_paths(begin, tree)
    reads = Reads(tree, place.scratch)
    reads.begin()
    # Even a paused station has to end with its parent.
    OWN_PROCESS.settle()
    if place.cores is not None:
        OWN_PROCESS.use_processors(place.cores)
    sys.argv = ["pytest", place.test]
    test = ServedTest(begin, Pipe(orders, answers), tree, reads)
    when_imported("onnxruntime", test.sessions.wrap_runtime)
    run_test(test, tree)


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Take standard input and output for the messages, and give the program others."""
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return orders, answers


def _set_import_paths(begin: messages.Begin, tree: SideTree) -> None:
    place = begin.place
    given = sys.path if place.sys_path is None else place.sys_path
    sys.path[:] = tree.import_paths(given, place.paths)
    inherited = os.environ.get(_PYTHONPATH, "").split(os.pathsep)
    for_children = tree.import_paths(inherited, place.paths)
    if for_children:
        os.environ[_PYTHONPATH] = os.pathsep.join(for_children)
    if tree.is_other:
        sys.meta_path.insert(0, SideFinder(tree))


# -- runs pytest for one test with the options of the parent


_PLUGIN = "pytest_modelperf.plugin"
_ENTRY_POINT = "modelperf"
# Options that select tests, stop or repeat runs, distribute them, or write reports.
OF_ONE_TEST: Mapping[str, object] = {
    **dict.fromkeys((
        "allure_report_dir", "cacheshow", "debug", "deselect", "htmlpath", "log_file",
        "maxprocesses", "numprocesses", "pastebin", "report_log", "xmlpath",
    ), None),
    **dict.fromkeys((
        "cacheclear", "collectonly", "distload", "failedfirst", "json_report", "lf", "looponfail",
        "modelperf", "newfirst", "setuponly", "setupplan", "setupshow", "showfixtures",
        "show_fixtures_per_test", "stepwise", "stepwise_reset", "stepwise_skip", "trace", "usepdb",
    ), False),
    "color": "no", "dist": "no", "cov_source": [], "tx": [], "keyword": "", "markexpr": "",
    "last_failed_no_failures": "all", "maxfail": 0, "reruns": 0, "no_cov": True, "tbstyle": "short",
}  # fmt: skip
_PLACES = ("confcutdir", "inifilename", "rootdir")
_NOT_FOUND = re.compile(r"not found:|found no collectors for")


def run_test(test: ServedTest, tree: SideTree) -> None:
    """Run pytest up to the end of the test, and answer the parent in every case."""
    place = test.place
    file = place.test.partition("::")[0].partition("[")[0]
    if not os.path.isfile(os.path.join(place.tree, file)):  # noqa: PTH113, PTH118
        test.answer(messages.IsMissing(f"{file} does not exist there"))
        return
    hooks = StationHooks(test)
    try:
        argument = os.path.join(place.tree, place.test)  # noqa: PTH118
        config: Any = Config.fromdictargs(_options(place, tree), [argument])
        config.stash[STATION] = test
        config.pluginmanager.register(hooks, "modelperf-station")
        config.hook.pytest_cmdline_main(config=config)
    except pytest.UsageError as error:
        text = "\n".join(map(str, error.args))
        if _NOT_FOUND.search(text) and not hooks.collect_failure:
            test.answer(messages.IsMissing(text))
        test.say_ended(hooks.collect_failure or text)
    except BaseException as error:
        test.say_ended(failure_text(error))
        raise
    test.say_ended(hooks.collect_failure or "pytest ended without running the test")


class StationHooks:
    """The plugin of a station, which keeps one test and reports if it did not reach the call."""

    def __init__(self, test: ServedTest) -> None:
        self._test = test
        self.collect_failure = ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep one test: a name without parameters would select all of its parameter sets."""
        wanted = self._test.place.test.partition("::")[2]
        named = [item for item in items if name_in_file(item) == wanted]
        if items and not named and not self.collect_failure:
            names = ", ".join(name_in_file(item) for item in items[:5])
            self._test.answer(messages.IsMissing(f"there are: {names}"))
        result = yield
        kept = [item for item in items if item in named]
        if named and not kept:
            self._test.answer(messages.NotReached("a conftest or a plugin deselected the test"))
        items[:] = kept[:1]
        return result

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed or not self.collect_failure:
            self.collect_failure = why_not_reached(report) or self.collect_failure

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reason = why_not_reached(report)
        if reason is not None:
            self._test.say_ended(reason)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Set no timer of pytest-timeout, because the parent decides how long a station runs."""
        return True


def why_not_reached(report: pytest.CollectReport | pytest.TestReport) -> str | None:
    """Return why a test did not reach the call, if this report shows it."""
    if report.failed:
        return last_lines(report.longreprtext)
    if report.skipped:
        xfail = getattr(report, "wasxfail", None)
        if xfail is not None:
            text = report.longreprtext or xfail
            return f"the test failed, as it is expected to: {last_lines(text)}"
        return f"the test was skipped: {_skip_reason(report.longrepr)}"
    if isinstance(report, pytest.TestReport) and report.when == "call":
        return "the test ended without calling modelperf.check(function)"
    return None


def _options(place: messages.StationPlace, tree: SideTree) -> dict[str, Any]:
    options: dict[str, Any] = {**place.options}
    options |= OF_ONE_TEST
    # pytest warns of a value that it has not parsed itself.
    options.pop("file_or_dir", None)
    for name in _PLACES:
        given = options.get(name)
        if isinstance(given, str):
            options[name] = tree.mapped(given) if os.path.isabs(given) else given  # noqa: PTH117
    scratch = Path(place.scratch)
    options["basetemp"] = str(scratch / "tmp")
    cache = f"cache_dir={scratch / 'cache'}"
    options["override_ini"] = [*(options.get("override_ini") or ()), cache]
    plugins = list(options.get("plugins") or ())
    if not entry_points(group="pytest11", name=_ENTRY_POINT):
        # An environment with other versions does not have this package installed.
        plugins = [*(each for each in plugins if each != _ENTRY_POINT), _PLUGIN]
    options["plugins"] = plugins
    return options


def name_in_file(item: pytest.Item) -> str:
    """Return the id of a test in its file, without the group that xdist adds to a node id."""
    chain = item.listchain()
    last = max(index for index, node in enumerate(chain) if isinstance(node, pytest.File))
    return "::".join(node.name for node in chain[last + 1 :])


def _skip_reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) and len(longrepr) == 3 else str(longrepr)
    return str(text).removeprefix("Skipped: ")
