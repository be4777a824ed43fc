"""What a station needs of this run: its options, and the id of a test in the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from pytest_modelperf.programs.station.pytest_run import name_in_file


def options_of(config: pytest.Config) -> Mapping[str, object]:
    """The options that can be written as JSON; a station has defaults for the others."""
    return {name: value for name, value in vars(config.option).items() if _is_plain(value)}


def id_below(item: pytest.Item, top: Path) -> str:
    """The id of a test, with the path of its file relative to the top folder."""
    place = os.path.relpath(os.path.realpath(item.path), os.path.realpath(top))
    return f"{Path(place).as_posix()}::{name_in_file(item)}"


def _is_plain(value: object) -> bool:
    """Whether the value would be read as it is: a tuple or a set comes back as a list."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, OverflowError):
        return False
