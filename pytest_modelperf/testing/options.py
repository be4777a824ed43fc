"""The settings as options and ini keys of pytest."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_modelperf.options import OPTIONS, Option, UpdateMode

_UPDATES = {
    UpdateMode.ALL: "record the baselines of all cases of this run",
    UpdateMode.NEW: "record the baselines of cases that have none",
    UpdateMode.IMPROVED: "record the baselines of cases that got better",
}


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelperf", "performance of ONNX models")
    group.addoption(
        "--modelperf",
        action="store_true",
        default=False,
        help="run the tests that profile models; without it they are skipped",
    )
    for option in OPTIONS:
        if option.implied is not None:
            _add_update(group, option)
        elif option.metavar is None:
            group.addoption(
                option.flag, action="store_true", dest=option.ini, default=None, help=option.help
            )
        else:
            group.addoption(
                option.flag,
                action="append" if option.is_repeatable else "store",
                metavar=option.metavar,
                dest=option.ini,
                default=None,
                help=_help(option),
            )
        if option.is_in_files:
            parser.addini(option.ini, option.help, type=_ini_type(option), default=None)


def _add_update(group: pytest.OptionGroup, option: Option[object]) -> None:
    """A value that may be left out would swallow the path of a test that follows the option.

    So each value makes an option of its own: argparse looks for the whole word first.
    """
    for mode, text in _UPDATES.items():
        names = [f"{option.flag}={mode.value}"]
        if mode.value == option.implied:
            names.insert(0, option.flag)
        group.addoption(
            *names, action="store_const", const=mode.value, dest=option.ini, default=None, help=text
        )


def _help(option: Option[object]) -> str:
    text = option.help.replace("%", "%%")
    return f"{text} (default: {option.default_text})" if option.default_text else text


def _ini_type(option: Option[object]) -> Literal["linelist", "string"]:
    # Not "bool": pytest would refuse a text that is none without saying where it stands.
    return "linelist" if option.is_repeatable else "string"
