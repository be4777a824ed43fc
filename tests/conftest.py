"""What all tests share: pytest's own fixture for tests of plugins, and a lock of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test waits for what else is measured on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_VARIABLE, str(tmp_path_factory.mktemp("lock") / "lock"))
        yield
