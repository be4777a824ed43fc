"""Shared by all tests: pytest's own fixture for tests of plugins, and a lock of their own.

The folders are the rooms of the package; `support` has what the tests of several rooms share.

Where pytest-xdist runs tests in several processes, a file of tests is run by one of them. Tests
that measure with real engines run one after the other: two at once would disturb each other, and
take longer to be decided. So do those that share a browser. Tests of engines whose clock is their
own run at the same time as all others.
"""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["pytester"]

# The library that numpy multiplies with starts a thread for each processor when it is imported,
# which takes half of that time, and hundreds of processes import it here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No test depends on how long something takes, and a machine may be busy. A change is judged by the
# same examples each time; `--hypothesis-profile=searching` looks for new ones.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("unhurried", settings.get_profile("searching"), derandomize=True)
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
PAGES = TESTS / "report" / "pages"
MEASURING = (
    TESTS / "bisect" / "test_releases.py",
    TESTS / "cli" / "test_measuring.py",
    TESTS / "cli" / "test_whatif.py",
    TESTS / "comparing" / "test_by_running.py",
    TESTS / "environments" / "test_real.py",
    TESTS / "docs" / "test_docs.py",
    TESTS / "docs" / "test_examples.py",
    TESTS / "docs" / "test_pages.py",
    TESTS / "docs" / "test_readme.py",
    TESTS / "docs" / "test_tracing.py",
    TESTS / "docs" / "test_tutorial.py",
    TESTS / "hostile" / "test_external_data.py",
    TESTS / "hostile" / "test_names.py",
    TESTS / "hostile" / "test_working_folder.py",
    TESTS / "profiler" / "engines",
    TESTS / "profiler" / "sampling" / "test_duet.py",
    TESTS / "profiler" / "test_functions.py",
    TESTS / "profiler" / "inputs" / "test_inputs.py",
    TESTS / "whatif" / "test_quantizing.py",
    TESTS / "profiler" / "worker",
    TESTS / "roofline" / "test_peaks.py",
    TESTS / "sweep" / "test_configurations.py",
)
# The slowest files begin first, so that no process works long after the others have ended. The
# rest takes a few seconds a file.
SLOWEST = (
    "measuring",
    "pages",
    *(
        str(TESTS / file)
        for file in (
            "testing/test_measured.py",
            "testing/test_upgrades.py",
            "faults/test_measuring_faults.py",
            "testing/test_with_others.py",
            "stats/test_decisions.py",
            "testing/test_on_cluster.py",
            "cluster/test_real_faults.py",
            "testing/test_live_line.py",
            "testing/test_cluster_checker.py",
            "tracing/test_autostart_forked.py",
            "testing/test_history.py",
            "actions/test_action.py",
            "testing/test_static_checks.py",
            "tracing/test_launch.py",
            "testing/test_options.py",
            "faults/test_file_faults.py",
            "stats/test_estimates.py",
            "testing/test_switched_off.py",
            "baselines/test_store.py",
            "testing/test_ending.py",
        )
    ),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that open a browser are slow, and what takes longest is first."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    ranks = {group: rank for rank, group in enumerate(SLOWEST)}
    items.sort(key=lambda item: ranks.get(_group_of(item.path), len(ranks)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: the garbage collector need not look through them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Give tests of one group to one process, in the order of the collection.

    Marks of pytest-xdist would say so in the ids of tests, which pytest 9.2 does not let them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(config.rootpath / nodeid.partition("::")[0])

    # Otherwise the file with most tests would come first, and some of few tests take longest.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


@cache
def _group_of(file: Path) -> str:
    """Return the group of the tests of a file: several files together, or the file alone."""
    within = {file, *file.parents}
    if within & set(MEASURING):
        return "measuring"
    return "pages" if PAGES in within else str(file)


@pytest.fixture(scope="module", autouse=True)
def settled() -> None:
    """Freeze what earlier tests left, so that timed blocks do not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def same_examples() -> Iterator[None]:
    """Draw the same examples of a test, whichever others ran before it in this process.

    Hypothesis also draws the constants of all modules that are loaded.
    """
    with pytest.MonkeyPatch.context() as patch:
        if settings.default is not None and settings.default.derandomize:
            patch.setattr(providers, "_get_local_constants", Constants)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test finds what this user's own runs have kept, and none adds to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test waits for other measurements on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_VARIABLE, str(tmp_path_factory.mktemp("lock") / "lock"))
        # pytest-xdist sets it, and reports would be cut to it.
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that this one starts."""
    workers: list[subprocess.Popen[bytes]] = []
    plain = subprocess.Popen

    def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        workers.append(plain(command, **options))
        return workers[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return workers
