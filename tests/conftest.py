"""What all tests share: pytest's own fixture for tests of plugins, and a lock of their own.

Tests that measure run one after the other also where pytest-xdist runs others beside them: two
at once would disturb each other, and take longer to be decided. So do those that share a browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
PAGES = TESTS / "page"
MEASURING = (
    TESTS / "measuring",
    TESTS / "plugin" / "test_ending.py",
    TESTS / "plugin" / "test_live_line.py",
    TESTS / "plugin" / "test_measured.py",
    TESTS / "plugin" / "test_with_others.py",
    TESTS / "test_docs.py",
    TESTS / "test_docs_pages.py",
    TESTS / "test_docs_tracing.py",
    TESTS / "test_examples.py",
    TESTS / "test_readme.py",
)


# Before pytest-xdist asks which group each test is in.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that measure first, as one group for pytest-xdist: they take longest."""
    measuring = {item for item in items if {item.path, *item.path.parents} & set(MEASURING)}
    for item in measuring:
        item.add_marker(pytest.mark.xdist_group("measuring"))
    for item in items:
        if PAGES in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("pages"))
    items.sort(key=lambda item: item not in measuring)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test waits for what else is measured on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_VARIABLE, str(tmp_path_factory.mktemp("lock") / "lock"))
        # pytest-xdist sets it, and reports would be cut to it.
        patch.delenv("COLUMNS", raising=False)
        yield
