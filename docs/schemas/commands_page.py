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
# The page says it of every file, once.
_STANDARD_OUTPUT = "; - for stdout"


def with_commands(text: str) -> str:
    """The page with the commands of today."""
    return with_block(text, _MARK, reference())


def reference() -> str:
    """A section for each command, and one for the options that several of them take."""
    commands = all_commands()
    takers = shared_options(commands)
    sections = [_section(name, each, takers) for name, each in commands.items()]
    rows = [(*row, ", ".join(map(code, names))) for row, names in sorted(takers.items())]
    shared = table(("option", "meaning", "shared by"), rows)
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
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    # A command below another one has no guide of its own.
    guides = [f"[Guide]({each})" for each in _guides(main.commands[name.partition(" ")[0]])]
    has_shared = any(row in shared for row in rows)
    links = [*guides, *(["[shared options](#shared-options)"] if has_shared else [])]
    return (
        "\n".join(
            (
                f"## modelperf {name}\n",
                f"```text\nmodelperf {name} {usage}\n```\n",
                _help(command),
                f"{', '.join(links)}\n",
                _list(sorted(row for row in rows if row not in shared)),
            )
        ).rstrip("\n")
        + "\n"
    )


def _list(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {typed}: {meaning}\n" for typed, meaning in rows)


def _help(command: click.Command) -> str:
    """The first paragraph: the guide has the others, and examples."""
    text, _, _ = inspect.cleandoc(command.help or "").partition("\n\n")
    return f"{' '.join(text.split())}\n"


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
    meaning = " ".join((option.help or "").split()).replace(_STANDARD_OUTPUT, "")
    if option.show_default:
        meaning = f"{meaning} [default: {option.default}]"
    return code(typed), _PLAIN.sub(lambda found: found[0].replace("[", r"\[", 1), meaning)
