"""The run of a pytest session with `--modelperf`.

The plugin imports this module in every pytest run, so it defines almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_modelperf.testing.run import Run

RUN: pytest.StashKey[Run] = pytest.StashKey()


def run_of(config: pytest.Config) -> Run | None:
    """Return the run, or None without --modelperf."""
    return config.stash.get(RUN, None)
