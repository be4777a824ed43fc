"""What all tests share: pytest's own fixture for tests of plugins, and a lock of their own.

The folders are the rooms of the package; `support` has what the tests of several rooms share.

Tests that measure run one after the other also where pytest-xdist runs others beside them: two
at once would disturb each other, and take longer to be decided. So do those that share a browser.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["pytester"]

# The library that numpy multiplies with starts a thread for each processor where it is imported,
# which takes half of that time, and hundreds of processes import it here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No test depends on how long something takes, and a machine may be busy.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
PAGES = TESTS / "report" / "pages"
MEASURING = (
    TESTS / "cli" / "test_measuring.py",
    TESTS / "cli" / "test_whatif.py",
    TESTS / "comparing" / "test_by_duet.py",
    TESTS / "docs" / "test_docs.py",
    TESTS / "docs" / "test_examples.py",
    TESTS / "docs" / "test_pages.py",
    TESTS / "docs" / "test_readme.py",
    TESTS / "docs" / "test_tracing.py",
    TESTS / "faults" / "test_measuring_faults.py",
    TESTS / "hostile" / "test_external_data.py",
    TESTS / "hostile" / "test_names.py",
    TESTS / "hostile" / "test_working_folder.py",
    TESTS / "profiler" / "engines",
    TESTS / "profiler" / "test_duet.py",
    TESTS / "profiler" / "test_functions.py",
    TESTS / "profiler" / "test_inputs.py",
    TESTS / "profiler" / "test_quantizing.py",
    TESTS / "profiler" / "worker",
    TESTS / "roofline" / "test_peaks.py",
    TESTS / "sweep" / "test_measuring.py",
    TESTS / "testing" / "test_cluster_checker.py",
    TESTS / "testing" / "test_ending.py",
    TESTS / "testing" / "test_live_line.py",
    TESTS / "testing" / "test_measured.py",
    TESTS / "testing" / "test_on_cluster.py",
    TESTS / "testing" / "test_with_others.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that measure first: they take longest."""
    items.sort(key=lambda item: _group_of(item.path) != "measuring")


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: nobody needs to look through them for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """What belongs together for one worker: the tests of a group, or those of a file.

    Marks of pytest-xdist would say so in the ids of tests, which pytest 9.2 does not let them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _group_of(config.rootpath / file) or file

    return Scheduling(config, log)


def _group_of(path: Path) -> str | None:
    within = {path, *path.parents}
    if within & set(MEASURING):
        return "measuring"
    return "pages" if PAGES in within else None


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test waits for what else is measured on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_VARIABLE, str(tmp_path_factory.mktemp("lock") / "lock"))
        # pytest-xdist sets it, and reports would be cut to it.
        patch.delenv("COLUMNS", raising=False)
        yield
