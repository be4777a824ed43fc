"""The headings of a command's help, under which its options are grouped."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

import click

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
    """Return the click option under a heading of the help."""
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
