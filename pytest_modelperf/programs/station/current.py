"""Find the station that this pytest process is, if it is one.

The plugin imports this module in every run of every user, so it defines as little as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_modelperf.programs.station.served import ServedTest

STATION: pytest.StashKey[ServedTest] = pytest.StashKey()


def station_of(config: pytest.Config) -> ServedTest | None:
    """Return the test that this process serves, or None in any other run of pytest."""
    return config.stash.get(STATION, None)
