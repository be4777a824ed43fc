"""Settings as click options, and their values read from text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import click
from click.core import ParameterSource
from msgspec import UNSET

from pytest_modelperf.cli.groups import GroupedOption, HelpGroup, Option
from pytest_modelperf.errors import UsageError, Wording
from pytest_modelperf.spec.case_definitions import (
    BATCH_SIZE,
    COMMAND_GATEWAY,
    CORES,
    DIMS,
    GENERATE,
    GUESS,
    INPUT_FILE,
    INPUTS,
    PROMPT,
    STATE,
    WORKLOAD,
)
from pytest_modelperf.spec.run_definitions import (
    CLUSTER,
    ENGINE,
    ENGINE_OPTION,
    MACHINE,
    MAX_SECONDS,
    MIN_SECONDS,
    STATIC_ONLY,
    TIMEOUT,
    TOLERANCE,
    WARMUP_SECONDS,
    Setting,
)
from pytest_modelperf.text.escaping import shell_word

# Kinds of settings with a list of values. If such an option is given twice, click would keep the
# last list, and drop the others silently.
_LISTS = frozenset({"lengths", "sizes", "tolerance"})
# Settings by their heading in the help, by the field that has the value.
_GROUPS: Mapping[str, HelpGroup] = {
    each.field: group
    for group, settings in {
        HelpGroup.SIZES: (
            *(BATCH_SIZE, CORES, DIMS, INPUTS, GUESS, PROMPT, GENERATE, STATE),
            *(INPUT_FILE, WORKLOAD),
        ),
        HelpGroup.ENGINE: (ENGINE, ENGINE_OPTION, COMMAND_GATEWAY, CLUSTER, MACHINE),
        HelpGroup.MEASURING: (MAX_SECONDS, WARMUP_SECONDS, MIN_SECONDS, TIMEOUT, TOLERANCE),
    }.items()
    for each in settings
}


def setting_option(  # noqa: PLR0913  # what a command can change
    setting: Setting,
    *,
    help: str | None = None,  # noqa: A002  # click's name for it
    more: str = "",
    metavar: str | None = None,
    default: object = None,
    has_note: bool = False,
    is_taken: bool = True,
) -> Option:
    """Return the option of a setting, whose value is read and has the name of the field.

    The help is that of the definition, unless the command has its own, followed by the sentences in
    `more`. If the option is not given, the value is `default`, or else UNSET, which means the
    default of the record that takes the value.
    """
    shown = setting.default_text if default is None else f"{default}"
    return click.option(
        setting.command_flag,
        setting.field,
        cls=GroupedOption,
        group=_GROUPS.get(setting.field),
        is_flag=setting.metavar is None,
        multiple=setting.is_repeatable or setting.kind in _LISTS,
        type=bool if setting.metavar is None else click.UNPROCESSED,
        metavar=metavar or setting.metavar,
        default=False if setting.metavar is None else default,
        expose_value=is_taken,
        callback=None if setting.metavar is None else _reads(setting),
        help=_help(setting, help, more, shown, has_note=has_note),
    )


def _reads(setting: Setting) -> Callable[[click.Context, click.Parameter, object], object]:
    """Return a callback that reads what was typed, by the same function as all other options."""

    def read_given(context: click.Context, parameter: click.Parameter, value: object) -> object:
        source = context.get_parameter_source(parameter.name or "")
        if source is ParameterSource.DEFAULT or value is None:
            return value or UNSET
        # Imported here, because it imports all readers.
        from pytest_modelperf.spec.kinds import read_typed

        typed = list(value) if isinstance(value, tuple) else value
        if isinstance(typed, list) and not setting.is_repeatable:
            if len(typed) > 1:
                raise UsageError(f"{setting.command_flag} is given twice: give it once.")
            (typed,) = typed
        return read_typed(setting, typed, setting.command_flag)

    return read_given


def _help(setting: Setting, own: str | None, more: str, default: str, *, has_note: bool) -> str:
    clause = setting.typed_help if own is None else own
    if has_note:
        clause = f"{clause}; {setting.note}"
    sentence = f"{clause[0].upper()}{clause[1:]}.{more and f' {more}'}".replace("`", "")
    usual = f"{default} {setting.unit}".rstrip() if default else setting.usual
    return f"{sentence}  [default: {usual}]" if usual else sentence


# -- the values of options that are lists


_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_BYTES_PER_MB = 1_000_000
# More than any machine has.
_MOST_MEGABYTES = 1e12


def parse_threshold(option: str, text: str) -> float:
    """Read milliseconds, which may be a fraction."""
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else 0.0
    # Python reads a text with enough digits as 0 or as infinity.
    if not 0 < value < math.inf:
        raise UsageError(f"{option} takes milliseconds above 0, such as 20 or 0.5; not {text!r}.")
    return value


def parse_megabytes(option: str, text: str) -> int:
    """Read a number of megabytes, which may be a fraction, and return the bytes."""
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else 0.0
    if not 0 < value < _MOST_MEGABYTES:
        raise UsageError(f"{option} takes megabytes above 0, such as 300 or 12.5; not {text!r}.")
    return round(value * _BYTES_PER_MB)


def parse_outputs(command: str, text: str) -> float:
    """Read how far the outputs of a model may differ, from the --tolerance of a command."""
    from pytest_modelperf.comparing.limits import OUTPUTS, read_share

    name, _, share = text.partition("=")
    if name.strip() != OUTPUTS or not share:
        raise UsageError(
            f"--tolerance of {command} applies only to outputs, such as outputs=0.01; not {text!r}."
        )
    return read_share(share, f"--tolerance: {OUTPUTS}")


def parse_wanted(option: str, texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Read the values to try for each named option of an engine, each once."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, separator, listed = text.partition("=")
        values = tuple(value.strip() for value in listed.split(","))
        if not (key.strip() and separator and all(values)):
            raise UsageError(
                f"{option} takes an option of the engine and its values, such as "
                f"graph_optimization_level=basic,extended; not {text!r}."
            )
        found[key.strip()] = tuple(dict.fromkeys((*found.get(key.strip(), ()), *values)))
    return found


def parse_shares(option: str, text: str) -> tuple[float, ...]:
    """Read the shares in a comma-separated list, each once, the smallest first."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0.0 <= share < 1.0 for share in shares):
        raise UsageError(f"{option} takes shares from 0 to below 1, such as 0.5,0.9; not {text!r}.")
    return tuple(sorted(set(shares)))


def parse_forms(option: str, text: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = [part.strip().lower() for part in text.split(",")]
    if not all(name in known for name in names):
        raise UsageError(f"{option} takes {', '.join(known)}; not {text!r}.")
    return tuple(dict.fromkeys(form for name in names for form in known[name]))


def parse_interpreter(option: str, path: str | None, *, is_here: bool) -> str | None:
    """Return the gateway to a Python interpreter, if one is given.

    If it is not here, it is a path on the machine that measures, which reports if it is missing.
    """
    if path is None:
        return None
    from pytest_modelperf.profiler.worker.gateway import interpreter_spec, python_spec

    return interpreter_spec(path, option) if is_here else python_spec(path)


# -- the settings in errors and advice, as options of a command


class CommandWording(Wording):
    """Settings in errors, as options of a command: `--dim seq=SIZE --dim batch=SIZE`."""

    names: Mapping[str, str] = {
        "baseline_python": "--python-a and --python-b",
        "batch": BATCH_SIZE.command_flag,
        "cores": CORES.command_flag,
        "dims": DIMS.command_flag,
        "engine_option": ENGINE_OPTION.command_flag,
        "inputs": INPUTS.command_flag,
        "json": "--json",
        "max_seconds": MAX_SECONDS.command_flag,
        "state": f"{STATE.command_flag} PAST=PRESENT",
        "static": STATIC_ONLY.command_flag,
        "timeout": TIMEOUT.command_flag,
        "tolerance": TOLERANCE.command_flag,
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return " ".join(f"{DIMS.command_flag} {shell_word(f'{name}=SIZE')}" for name in dims)

    def value(self, setting: str, value: str) -> str:
        return f"{self.names[setting]} {shell_word(value)}"


COMMAND_WORDING = CommandWording()
