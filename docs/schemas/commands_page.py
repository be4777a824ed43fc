"""The reference of the commands in docs/commands.md, from the definitions of the commands.

`make schemas` writes it between the marks of that page. An option that several commands describe
with the same words is in a table at the end, and in no section of a command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from marked_blocks import code, table, with_block

from pytest_modelperf.cli import main
from pytest_modelperf.cli.history import ACTIONS
from pytest_modelperf.text.version import SITE

PAGE = Path(__file__).parent.parent / "commands.md"
_MARK = "commands"
# Markdown would read these as a link or as HTML.
_PLAIN = re.compile(r"\[tool\.modelperf\]|\[default: |<[a-z]+>")
# What the page says once, or leaves to the guide, by what an option says here instead.
_SAID_ONCE: Mapping[str, str] = {
    r"; - for stdout": "",
    r"^Write .+ as CSV\.": "Write the figures as CSV.",
    r", which is the nearest folder upward with \[tool\.modelperf\] or \.git": "",
    r"; unless it is given, a slow model may take up to 60": "",
    r", in an environment that is made once and kept": "",
    r", or an engine of an extension\.": ", or one of an extension.",
    r", which have the names of its inputs": ", named as its inputs",
}


def with_commands(text: str) -> str:
    """The page with the commands of today."""
    return with_block(text, _MARK, reference())


def reference() -> str:
    """A section for each command, and one for the options that several of them take."""
    commands = all_commands()
    takers = shared_options(commands)
    sections = [_section(name, each, takers) for name, each in commands.items()]
    rows = [(*row, ", ".join(map(code, names))) for row, names in sorted(takers.items())]
    shared = table(("option", "meaning", "shared by"), rows, space="")
    return "\n".join([*sections, f"## Shared options\n\n{shared}"])


def shared_options(
    commands: Mapping[str, click.Command],
) -> Mapping[tuple[str, str], Sequence[str]]:
    """The commands that take an option, for each option of several commands."""
    takers: dict[tuple[str, str], list[str]] = {}
    for name, command in commands.items():
        for option in _options(command):
            takers.setdefault(_row(option), []).append(name)
    return {row: names for row, names in takers.items() if len(names) > 1}


def all_commands() -> Mapping[str, click.Command]:
    """Every command by its name, those below another one included."""
    below = {f"history {name}": each for name, each in ACTIONS.items()}
    return dict(sorted({**main.commands, **below}.items()))


def _section(name: str, command: click.Command, shared: Collection[tuple[str, str]]) -> str:
    rows = [_row(option) for option in _options(command)]
    arguments = command.collect_usage_pieces(click.Context(command))[1:]
    usage = code(" ".join(("modelperf", name, *arguments)))
    # A command below another one has no guide of its own.
    for guide in _guides(main.commands[name.partition(" ")[0]]):
        usage = f"[{usage}]({guide})"
    parts = (
        f"## modelperf {name}",
        f"{usage}: {_help(command)}",
        _list(sorted(row for row in rows if row not in shared)),
    )
    return "\n\n".join(filter(None, parts)).rstrip("\n") + "\n"


def _list(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {typed}: {meaning}\n" for typed, meaning in rows)


def _help(command: click.Command) -> str:
    """The first paragraph: the guide has the others, and examples."""
    text, _, _ = inspect.cleandoc(command.help or "").partition("\n\n")
    return " ".join(text.split())


def _guides(command: click.Command) -> Iterator[str]:
    """The page of docs/ that the help of the command names."""
    for name in re.findall(rf"{re.escape(SITE)}([\w-]+)/", command.epilog or ""):
        yield f"{name}.md"


def _options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option) and not each.hidden)


def _row(option: click.Option) -> tuple[str, str]:
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    value = "" if option.is_flag else option.metavar or "|".join(map(str, choices))
    typed = " ".join(filter(None, (", ".join((*option.opts, *option.secondary_opts)), value)))
    meaning = " ".join((option.help or "").split())
    for said, short in _SAID_ONCE.items():
        meaning = re.sub(said, short, meaning)
    if option.show_default:
        meaning = f"{meaning} [default: {option.default}]"
    return code(typed), _PLAIN.sub(lambda found: found[0].replace("[", r"\[", 1), meaning)
