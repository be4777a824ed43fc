"""The settings of a run, from options, ini keys and the table, and the part for a station."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from pytest_modelperf.files.documents import PYPROJECT, read_table
from pytest_modelperf.programs.station.main import name_in_file
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from pytest_modelperf.spec.sources import RunSettings, check_ini_keys, read_settings
from pytest_modelperf.testing.pytest_internals import ini_keys, ini_value
from pytest_modelperf.text.escaping import printable


def read_run_settings(config: pytest.Config) -> RunSettings:
    """Read the settings of this run, or raise UsageError for invalid values."""
    check_ini_keys(ini_keys(config))
    # pytest 8 does not add these keys to the ini keys.
    check_ini_keys(each.partition("=")[0] for each in config.getoption("override_ini") or ())
    return read_settings(
        config.rootpath,
        {each.key: config.getoption(each.ini) for each in RUN_SETTINGS},
        {each.key: ini_value(config, each.ini) for each in RUN_SETTINGS if each.is_in_files},
        read_table(config.rootpath / PYPROJECT),
    )


def describe_settings(settings: RunSettings) -> str:
    """Return `modelperf: baselines in baselines, 3 % allowed`."""
    folder = settings.baseline_dir
    shown = folder.relative_to(settings.root) if folder.is_relative_to(settings.root) else folder
    parts = [f"baselines in {printable(str(shown))}"]
    parts += [f"{100 * settings.tolerances.of(50.0):.4g} % allowed"]
    if settings.against is not None:
        parts[0] = f"against {printable(settings.against)}"
    if settings.engine != "onnxruntime":
        parts.append(f"on {printable(settings.engine)}")
    if settings.gateway is not None:
        parts.append(f"through {printable(settings.gateway)}")
    if settings.static_only:
        parts = [parts[0], "static figures only"]
    if settings.update is not None:
        parts.append(f"updating {settings.update.value}")
    if settings.strict:
        parts.append("strict")
    if settings.uses_cluster:
        parts.append(f"on the cluster {printable(str(settings.cluster))}")
    return f"modelperf: {', '.join(parts)}"


# -- what a station needs of this run


def options_of(config: pytest.Config) -> Mapping[str, object]:
    """Return the options that JSON can represent. A station uses defaults for the others."""
    return {name: value for name, value in vars(config.option).items() if _is_plain(value)}


def id_below(item: pytest.Item, top: Path) -> str:
    """Return the id of a test, with the path of its file relative to the top folder."""
    place = os.path.relpath(os.path.realpath(item.path), os.path.realpath(top))
    return f"{Path(place).as_posix()}::{name_in_file(item)}"


def _is_plain(value: object) -> bool:
    """Whether JSON preserves the value. A tuple or a set would come back as a list."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, OverflowError):
        return False
