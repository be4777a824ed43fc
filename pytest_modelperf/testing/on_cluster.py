"""A run that measures on a cluster, which gets its cases. A lost scheduler ends the run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from pytest_modelperf.cluster.cluster import Cluster, open_cluster
from pytest_modelperf.cluster.machines import status_line
from pytest_modelperf.cluster.places import parse_place
from pytest_modelperf.cluster.records import ClusterStatus
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.hookspecs import is_hook_name
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.spec.run_definitions import CLUSTER
from pytest_modelperf.testing.checking import Checker
from pytest_modelperf.testing.cluster_checker import ClusterChecker, ClusterTerms
from pytest_modelperf.testing.pytest_internals import distributes
from pytest_modelperf.testing.run import Run
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, shorten_list

# Draws a text, which is a function of the number of columns.
Draw = Callable[[Callable[[int], str]], None]
_CONFTEST = "conftest.py"
_MOST_NAMED = 4


def check_cluster(config: pytest.Config, place: str) -> None:
    """Raise UsageError for a cluster that this run cannot use, before anything is collected."""
    parse_place(place)
    if distributes(config):
        raise UsageError(
            f"{CLUSTER.flag} goes with one process of pytest, which gives all cases to the cluster "
            "at once: leave out -n, or -n and --dist of pytest-xdist."
        )


class ClusterRun:
    """The cases of a run on a cluster, from the first test to the last."""

    def __init__(self, cluster: Cluster, checker: ClusterChecker, cases: int) -> None:
        self._cluster = cluster
        self._checker = checker
        self._cases = cases

    def describe(self) -> str:
        """Return `modelperf: 9 cases for 2 machines of tcp://host:8786: pi-1 (...), pi-2 (...)`."""
        machines = self._cluster.machines
        counts = Counter(printable(machine.label) for machine in machines)
        labels = [f"{label} ({n})" if n > 1 else label for label, n in sorted(counts.items())]
        cases, found = count_of(self._cases, "case"), count_of(len(machines), "machine")
        where = printable(self._cluster.name)
        return f"modelperf: {cases} for {found} of {where}: {shorten_list(labels, _MOST_NAMED)}"

    def end_test(self, item: pytest.Item) -> None:
        """Cancel the job that a test did not wait for, and end the run if the scheduler is gone."""
        self._checker.finish(item.nodeid)
        if self._cluster.is_gone and not item.session.shouldfail:
            item.session.shouldfail = (
                f"the scheduler at {printable(self._cluster.name)} is gone: start it again and "
                "run the rest"
            )


@contextmanager
def measuring_on_cluster(
    run: Run, items: Sequence[pytest.Item], draw: Draw
) -> Iterator[ClusterRun]:
    """Submit all cases of these tests to the cluster, and cancel unfinished ones at the end.

    Raise ClusterError if no machine may run one of them, before anything runs.
    """
    here = run.checker
    if not isinstance(here, Checker):
        raise TypeError("a run has one cluster")
    settings = run.settings
    plugins = tuple(_extension_modules(run.config))
    statuses = [ClusterStatus(0, 0, ())]

    def show() -> None:
        draw(lambda room: status_line(statuses[0], room))

    def note(status: ClusterStatus) -> None:
        # Called in another thread, which must not write to the terminal.
        statuses[0] = status

    with (
        working_folder("models") as folder,
        ExitStack() as kept,
        open_cluster(str(settings.cluster), note, on_warning=run.notes.append) as cluster,
    ):
        terms = ClusterTerms(
            folder=folder,
            kept=kept,
            machines=settings.machine,
            plugins=plugins,
            takes_layers=settings.trace is not None,
            show=show,
        )
        checker = ClusterChecker(here, cluster, terms)
        checks = list(run.first_checks(items))
        checker.require(checks)
        checker.submit(checks)
        run.checker = checker
        try:
            yield ClusterRun(cluster, checker, sum(not check.is_bound_here for check in checks))
        finally:
            run.checker = here


def _extension_modules(config: pytest.Config) -> Iterator[str]:
    """Yield the modules with the hooks of this run's extensions, which the machines import too.

    Raise UsageError for a hook that exists only here. The machines have extensions from entry
    points installed.
    """
    found = {
        _module_of(plugin, name): None
        for plugin in config.pluginmanager.get_plugins()
        for name in dir(plugin)
        if is_hook_name(name)
    }
    yield from found


def _module_of(plugin: object, name: str) -> str:
    hook = getattr(plugin, name)
    module = sys.modules.get(getattr(hook, "__module__", None) or "")
    if isinstance(module, ModuleType) and getattr(module, name, None) is hook:
        file = Path(getattr(module, "__file__", None) or "")
        if file.name != _CONFTEST:
            return module.__name__
    where = getattr(plugin, "__file__", None) or type(plugin).__name__
    raise UsageError(
        f"{name} in {printable(str(where))} is only here, and the machines of a cluster need it "
        "too: move it into a module that is installed there, and import it from that module, or "
        f"load that module with `pytest -p MODULE`. Or leave out {CLUSTER.flag}."
    )
