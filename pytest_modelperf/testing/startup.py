"""The names of markers and options, and the settings as options and ini keys of pytest.

The plugin imports this module in every pytest run, so it imports almost nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, UPDATE_BASELINE, Setting, UpdateMode
from pytest_modelperf.text.version import SITE

FLAG = "modelperf"
SWITCHED_OFF = "needs --modelperf"

CASE = "perf_case"
BUDGET = "perf_budget"
FIXTURE = "modelperf"
# The argument that parametrizes a test by its cases.
CASE_ARGUMENT = "_modelperf_case"
SUFFIX = ".onnx"
# The suffixes of model files. The second is ONNX Runtime's own format.
SUFFIXES = (SUFFIX, ".ort")
# The name of the test that represents all cases of a model.
ALL_CASES = "cases"
# The texts that `pytest --markers` shows.
MARKERS = (
    (
        f"{CASE}(model, batch_size=1, cores=1, dims={{}}, ...): run the test once for each case of "
        "an ONNX model, and compare it with its baseline"
    ),
    (
        f"{BUDGET}(latency_ms=..., p99_ms=..., max_ms=..., macs=..., kernels=..., ...): what the "
        "cases of the test may cost"
    ),
)


def named_tests(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """Yield the files and folders on the command line, each with the text after its `::`."""
    folder = config.invocation_params.dir
    for arg in config.args:
        path, name = split_argument(arg, folder)
        yield Path(os.path.normpath(folder / path)), name


def split_argument(arg: str, folder: Path) -> tuple[str, str]:
    """Split an argument at its `::`, which may also occur in the path of a model."""
    end = arg.rfind(SUFFIX) + len(SUFFIX)
    while end >= len(SUFFIX):
        if arg[end : end + 2] in {"", "::"} and (folder / arg[:end]).is_file():
            return arg[:end], arg[end + 2 :]
        end = arg.rfind(SUFFIX, 0, end - len(SUFFIX)) + len(SUFFIX)
    path, _, name = arg.partition("::")
    return path, name


def has_markers(node: pytest.Item) -> bool:
    """Whether markers make it a test of a model. Markers of a module do not apply to doctests."""
    is_function = isinstance(node, pytest.Function)
    return is_function and any(node.get_closest_marker(name) for name in (CASE, BUDGET))


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelperf", "performance of ONNX models")
    group.addoption(
        "--modelperf",
        action="store_true",
        default=False,
        # The address has its own line, because argparse would break it at a hyphen.
        help=f"run the tests that profile models; without it they are skipped. The guide:\n{SITE}",
    )
    for setting in RUN_SETTINGS:
        if setting.implied is not None:
            _add_update(group, setting)
        elif setting.metavar is None:
            group.addoption(
                setting.flag,
                action="store_true",
                dest=setting.ini,
                default=None,
                help=_help(setting),
            )
        else:
            group.addoption(
                setting.flag,
                action="append" if setting.is_repeatable else "store",
                metavar=setting.metavar,
                dest=setting.ini,
                default=None,
                help=_help(setting),
            )
        if setting.is_in_files:
            # Not "bool": pytest rejects an invalid text without naming the key.
            kind: Literal["linelist", "string"] = "linelist" if setting.is_repeatable else "string"
            parser.addini(setting.ini, setting.option_help, type=kind, default=None)


def check_mode(typed: Sequence[str | os.PathLike[str]]) -> None:
    """Raise UsageError for an unknown mode of recording. argparse would not list the valid ones."""
    for argument in typed:
        option, separator, mode = str(argument).partition("=")
        if option == UPDATE_BASELINE.flag and separator:
            from pytest_modelperf.errors import UsageError
            from pytest_modelperf.spec.kinds import read

            try:
                read(UPDATE_BASELINE, mode, option)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from error


def missed_line(config: pytest.Config) -> str | None:
    """Return a line on typed options without effect, or None if there are none.

    It is not an error, because `addopts` may contain them.
    """
    if config.getoption(FLAG):
        return None
    missed = [
        each.flag
        for each in RUN_SETTINGS
        if each.has_result and config.getoption(each.ini) is not None
    ]
    if not missed:
        return None
    does = "does" if len(missed) == 1 else "do"
    flags = ", ".join(missed)
    return f"modelperf: without --modelperf no model is profiled, so {flags} {does} nothing"


def _add_update(group: pytest.OptionGroup, setting: Setting) -> None:
    """Add an option with an optional value, as one option for each value.

    With nargs="?", argparse would read the path of a test after the option as its value. With one
    option for each `--flag=value`, it finds the whole word first.
    """
    for mode in UpdateMode:
        group.addoption(
            f"{setting.flag}={mode.value}",
            action="store_const",
            const=mode.value,
            dest=setting.ini,
            default=None,
            help=argparse.SUPPRESS,
        )
    # The second name shows the values in the help and in errors.
    group.addoption(
        setting.flag,
        f"{setting.flag}={setting.metavar}",
        action="store_const",
        const=setting.implied,
        dest=setting.ini,
        default=None,
        help=_help(setting),
    )


def _help(setting: Setting) -> str:
    text = setting.option_help.replace("%", "%%")
    return f"{text} (default: {setting.default_text})" if setting.default_text else text
