"""Settings as options of click, from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import click
from click.core import ParameterSource
from msgspec import UNSET

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.setting import Setting

Command: TypeAlias = Callable[..., None]
Option: TypeAlias = Callable[[Command], Command]
# Kinds of settings with a list of values. Of such an option that is given again, click would keep
# the last list, and drop the others without a word.
_LISTS = frozenset({"lengths", "sizes", "tolerance"})


def setting_option(  # noqa: PLR0913  # what a command may say of it in another way
    setting: Setting,
    *,
    help: str | None = None,  # noqa: A002  # as click calls it
    more: str = "",
    metavar: str | None = None,
    default: object = None,
    has_note: bool = False,
    is_taken: bool = True,
) -> Option:
    """The option of a setting, whose value is read and has the name of the field.

    The help is that of the definition, unless the command has its own, with `more` sentences after
    it. Without the option the value is `default`; UNSET, if there is none, leaves it to the record
    that takes the value.
    """
    shown = setting.default_text if default is None else f"{default}"
    return click.option(
        setting.command_flag,
        setting.field,
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
    """A callback that reads what was typed, by the same function as every face."""

    def read_given(context: click.Context, parameter: click.Parameter, value: object) -> object:
        source = context.get_parameter_source(parameter.name or "")
        if source is ParameterSource.DEFAULT or value is None:
            return value or UNSET
        # Imported here: it imports all readers.
        from pytest_modelperf.spec.kinds import read_typed

        typed = list(value) if isinstance(value, tuple) else value
        if isinstance(typed, list) and not setting.is_repeatable:
            if len(typed) > 1:
                raise UsageError(f"{setting.command_flag} is given twice: give it once.")
            (typed,) = typed
        return read_typed(setting, typed, setting.command_flag)

    return read_given


def _help(setting: Setting, own: str | None, more: str, default: str, *, has_note: bool) -> str:
    """A sentence, with what is used where the option is not given."""
    clause = setting.typed_help if own is None else own
    if has_note:
        clause = f"{clause}; {setting.note}"
    sentence = f"{clause[0].upper()}{clause[1:]}.{more and f' {more}'}".replace("`", "")
    usual = f"{default} {setting.unit}".rstrip() if default else setting.usual
    return f"{sentence}  [default: {usual}]" if usual else sentence
