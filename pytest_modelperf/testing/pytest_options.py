"""The settings as options and ini keys of pytest."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Literal

import pytest

from pytest_modelperf.testing.names import FLAG
from pytest_modelperf.testing.options import MISSED, OPTIONS, UPDATE_BASELINE, Option, UpdateMode
from pytest_modelperf.text.site import SITE


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelperf", "performance of ONNX models")
    group.addoption(
        "--modelperf",
        action="store_true",
        default=False,
        # A line of its own, which argparse would break at a hyphen.
        help=f"run the tests that profile models; without it they are skipped. The guide:\n{SITE}",
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


def check_mode(typed: Sequence[str | os.PathLike[str]]) -> None:
    """UsageError for a mode of recording that is none: argparse would not say which there are."""
    for argument in typed:
        option, separator, mode = str(argument).partition("=")
        if option == UPDATE_BASELINE.flag and separator:
            from pytest_modelperf.errors import UsageError

            try:
                UPDATE_BASELINE.read(mode, option)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from error


def missed_line(config: pytest.Config) -> str | None:
    """A line that names the typed options without effect; None if models are profiled.

    It is no error: `addopts` may hold them.
    """
    if config.getoption(FLAG):
        return None
    missed = [option.flag for option in MISSED if config.getoption(option.ini) is not None]
    if not missed:
        return None
    does = "does" if len(missed) == 1 else "do"
    flags = ", ".join(missed)
    return f"modelperf: without --modelperf no model is profiled, so {flags} {does} nothing"


def _add_update(group: pytest.OptionGroup, option: Option[object]) -> None:
    """A value that may be left out would swallow the path of a test that follows the option.

    So each value is an option of its own: argparse looks for the whole word first.
    """
    for mode in UpdateMode:
        group.addoption(
            f"{option.flag}={mode.value}",
            action="store_const",
            const=mode.value,
            dest=option.ini,
            default=None,
            help=argparse.SUPPRESS,
        )
    # The second name is what help and errors show of the values.
    group.addoption(
        option.flag,
        f"{option.flag}={option.metavar}",
        action="store_const",
        const=option.implied,
        dest=option.ini,
        default=None,
        help=option.help,
    )


def _help(option: Option[object]) -> str:
    text = option.help.replace("%", "%%")
    return f"{text} (default: {option.default_text})" if option.default_text else text


def _ini_type(option: Option[object]) -> Literal["linelist", "string"]:
    # Not "bool": pytest refuses another text without naming the key.
    return "linelist" if option.is_repeatable else "string"
