"""The settings of a run, from options, ini keys and the table, and what earlier runs left."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.files.documents import PYPROJECT, read_table
from pytest_modelperf.files.store import user_cache_folder
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


# -- the outcomes that earlier runs left in the user's cache folder


def settled_folder() -> Path | None:
    """Return the folder of settled cases, or None for a user without a home folder."""
    try:
        return user_cache_folder() / "settled"
    except ModelPerfError:
        return None


def is_empty(folder: Path) -> bool:
    """Whether a folder has no file, as in a container that was just made."""
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return True
