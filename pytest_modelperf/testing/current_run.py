"""The run of a pytest session with `--modelperf`.

The plugin imports this in every run of every user, so it defines next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_modelperf.testing.run import Run

RUN: pytest.StashKey[Run] = pytest.StashKey()


def run_of(config: pytest.Config) -> Run | None:
    """The run; None without --modelperf."""
    return config.stash.get(RUN, None)
