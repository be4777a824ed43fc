"""The station that a pytest process is, if it is one.

The plugin imports this in every run of every user, so it defines next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_modelperf.programs.station.served import ServedTest

STATION: pytest.StashKey[ServedTest] = pytest.StashKey()


def station_of(config: pytest.Config) -> ServedTest | None:
    """The test that this process serves; None in any other run of pytest."""
    return config.stash.get(STATION, None)
