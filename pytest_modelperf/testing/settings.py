"""The settings of a run, from pytest's options, its ini keys and the table."""

from __future__ import annotations

import pytest

from pytest_modelperf.files.settings_table import PYPROJECT, read_table
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from pytest_modelperf.spec.run_settings import RunSettings
from pytest_modelperf.spec.sources import check_ini_keys, read_settings
from pytest_modelperf.testing.pytest_internals import ini_keys, ini_value


def read_run_settings(config: pytest.Config) -> RunSettings:
    """The settings of this run; UsageError for values that cannot be used."""
    check_ini_keys(ini_keys(config))
    # pytest 8 does not add these keys to the others.
    check_ini_keys(each.partition("=")[0] for each in config.getoption("override_ini") or ())
    return read_settings(
        config.rootpath,
        {each.key: config.getoption(each.ini) for each in RUN_SETTINGS},
        {each.key: ini_value(config, each.ini) for each in RUN_SETTINGS if each.is_in_files},
        read_table(config.rootpath / PYPROJECT),
    )
