"""The parameters of commands: settings and models as click reads them, grouped under headings."""

from __future__ import annotations

import math
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource
from msgspec import UNSET

from pytest_modelperf.errors import ModelPerfError, UsageError, Wording
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
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import quoted_text, shell_word

if TYPE_CHECKING:
    from pytest_modelperf.obtaining.origins import ModelOrigin
    from pytest_modelperf.sizing.records import FoundSizes

Command: TypeAlias = Callable[..., None]
Option: TypeAlias = Callable[[Command], Command]

_OTHERS = "Options"


class HelpGroup(str, Enum):
    """A heading of the help, in the order in which they follow the command's own options."""

    SIZES = "Sizes and inputs"
    ENGINE = "Engine and machine"
    MEASURING = "Measuring"
    OUTPUT = "Output"


class GroupedOption(click.Option):
    """An option that the help shows under a heading."""

    def __init__(
        self,
        *names: Any,  # noqa: ANN401  # click's own
        group: HelpGroup | None = None,
        **attributes: Any,  # noqa: ANN401  # the same
    ) -> None:
        super().__init__(*names, **attributes)
        self.group = group


def option_of(group: HelpGroup, *names: str, **attributes: Any) -> Option:  # noqa: ANN401  # click's
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


class GroupedCommand(click.Command):
    """A command whose help groups the options: its own first, then those under each heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            group = each.group if isinstance(each, GroupedOption) else None
            row = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if row is not None:
                rows.setdefault(_OTHERS if group is None else group.value, []).append(row)
        for title in (_OTHERS, *(group.value for group in HelpGroup)):
            if title in rows:
                with formatter.section(title):
                    formatter.write_dl(rows[title])


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


def find_model(name: str, root: Path | None = None) -> str:
    """Return the path of a model. If the name is not a path, the model is made or fetched.

    Functions are imported from the folder `root`, which is the working folder by default.
    """
    origin = origin_of(name)
    return name if origin is None else str(obtain_model(origin, root or Path.cwd()))


def origin_of(name: str) -> ModelOrigin | None:
    """Return where a model comes from, or None if the name is a path."""
    if ":" not in name:
        # Most names are paths, for which the imports below are not needed.
        return None
    from pytest_modelperf.obtaining.origins import is_address, read_address
    from pytest_modelperf.profiles.store import is_function
    from pytest_modelperf.spec.readers import read_function

    if is_address(name):
        return read_address(name, "MODEL")
    return read_function(name, "MODEL") if is_function(name) else None


def obtain_model(origin: ModelOrigin, root: Path) -> Path:
    """Return the file of a model.

    Raises UsageError if its function fails or it cannot be fetched.
    """
    import secrets

    from pytest_modelperf.obtaining.making import Making
    from pytest_modelperf.obtaining.origins import OriginKind, fetch_model

    if origin.kind is OriginKind.URL:
        return fetch_model(origin)
    making = Making(root=root, session=secrets.token_hex())
    try:
        # Standard output may be needed for a document of the command.
        with redirect_stdout(sys.stderr):
            made = making.make(origin, origin.short_name)
    except ModelPerfError:
        raise
    except Exception as error:
        raise _failed(origin, error) from error
    if made.is_kept:
        click.echo(
            f"{printable(origin.name)}: reusing the model of an earlier run, as nothing that "
            "the function read has changed. To make it again, remove "
            f"{printable(str(made.path.parent))}",
            err=True,
        )
    return made.path


def table_line(origin: ModelOrigin) -> str:
    """Return the key of a table that says where its model comes from."""
    from pytest_modelperf.obtaining.origins import OriginKind
    from pytest_modelperf.spec.case_definitions import MAKE, URL

    if origin.kind is OriginKind.URL:
        address = f"{origin.name}#sha256={origin.sha256}"
        return f"{URL.table_key} = {quoted_text(address)}"
    return f"{MAKE.table_key} = {quoted_text(origin.name)}"


def _failed(origin: ModelOrigin, error: Exception) -> UsageError:
    """Return the error of a user's function, with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = traceback.format_exception_only(error)[-1].strip()
    failed = UsageError(f"{printable(origin.name)} made no model: {printable(what)}")
    failed.details = (f'  File "{printable(last.filename)}", line {last.lineno}, in {last.name}',)
    return failed


# -- help for a model that does not run at the sizes that were typed


# With these options, an inference of ONNX Runtime on this machine does not show whether the sizes
# are good.
_ELSEWHERE = (
    ENGINE.command_flag, COMMAND_GATEWAY.command_flag, STATIC_ONLY.command_flag, "--requirement",
)  # fmt: skip
_NO_RUN = ("shapes",)


def find_for(error: ModelPerfError, typed: Sequence[str]) -> FoundSizes | None:
    """Return the sizes that help with an error of a command, or None if it has another cause."""
    if error.asked is None:
        return None
    from pytest_modelperf.sizing.finding import sizes_for

    options = {word.partition("=")[0] for word in typed}
    runs = typed[0] not in _NO_RUN and options.isdisjoint(_ELSEWHERE)
    return sizes_for(error, runs=runs)


def worded_with(error: ModelPerfError, found: FoundSizes, typed: Sequence[str]) -> str:
    """Return the error with the whole command that avoids it, or with what was tried."""
    if not found.is_found:
        return f"{error.worded(COMMAND_WORDING)}\n{found.error}"
    from pytest_modelperf.sizing.finding import render_advice, render_command

    return f"{error.message} {render_advice(found, render_command(found, typed))}"


def guessed(found: FoundSizes | None, typed: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a command with guessed sizes, if it requests these and there are any."""
    if found is None or not found.is_found or GUESS.command_flag not in typed:
        return None
    from pytest_modelperf.sizing.finding import with_sizes

    return with_sizes(found, typed)
