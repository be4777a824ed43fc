"""The reference of the commands in docs/commands.md, from the definitions of the commands.

`make schemas` writes it between the marks of that page. An option that several commands take in
the same words stands once, in a list at the end.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from marked_blocks import code, with_block

from pytest_modelperf.cli import main
from pytest_modelperf.cli.history import ACTIONS
from pytest_modelperf.text.site import SITE

PAGE = Path(__file__).parent.parent / "commands.md"
_MARK = "commands"
# So many commands make an option a common one.
_COMMON = 3
# Words that Markdown would read as a link or as HTML.
_PLAIN = re.compile(r"\[tool\.modelperf\]|\[default: |<[a-z]+>")


def with_commands(text: str) -> str:
    """The page with the commands of today."""
    return with_block(text, _MARK, reference())


def reference() -> str:
    """A section for each command, and one for the options that several of them take."""
    commands = all_commands()
    takers: dict[tuple[str, str], list[str]] = {}
    for name, command in commands.items():
        for option in _options(command):
            takers.setdefault(_row(option), []).append(name)
    common = {row: names for row, names in takers.items() if len(names) >= _COMMON}
    sections = [_section(name, each, common) for name, each in commands.items()]
    shared = _list(sorted(_told_apart(common)))
    return "\n".join([*sections, f"## Options of several commands\n\n{shared}"])


def _told_apart(
    common: Mapping[tuple[str, str], Sequence[str]],
) -> Iterator[tuple[str, str]]:
    """The rows; of an option that stands in two of them, each names its commands."""
    flags = Counter(typed.split()[0].strip("`") for typed, _ in common)
    for (typed, told), names in common.items():
        is_alone = flags[typed.split()[0].strip("`")] == 1
        yield typed, told if is_alone else f"({', '.join(names)}) {told}"


def all_commands() -> Mapping[str, click.Command]:
    """Every command by its name, those below another one included."""
    below = {f"history {name}": each for name, each in ACTIONS.items()}
    return dict(sorted({**main.commands, **below}.items()))


def _section(name: str, command: click.Command, common: Collection[tuple[str, str]]) -> str:
    rows = [_row(option) for option in _options(command)]
    own = [row for row in rows if row not in common]
    shared = ", ".join(code(_name(each)) for each in _options(command) if _row(each) in common)
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    parts = [f"## modelperf {name}\n", f"```text\nmodelperf {name} {usage}\n```\n", _help(command)]
    # A command below another one has its guide, and is told of it only once it was run.
    parts += [f"[Guide]({guide})\n" for guide in _guides(main.commands[name.split(maxsplit=1)[0]])]
    parts += [_list(own)] if own else []
    parts += (
        [f"[Options of several commands](#options-of-several-commands): {shared}.\n"]
        if shared
        else []
    )
    return "\n".join(parts)


def _list(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {typed}: {told}\n" for typed, told in rows)


def _help(command: click.Command) -> str:
    """The paragraphs before the examples."""
    text, _, _ = inspect.cleandoc(command.help or "").partition("\b")
    return "\n".join(f"{' '.join(part.split())}\n" for part in text.strip().split("\n\n"))


def _guides(command: click.Command) -> Iterator[str]:
    """The page of docs/ that the help of the command names."""
    for name in re.findall(rf"{re.escape(SITE)}([\w-]+)/", command.epilog or ""):
        yield f"{name}.md"


def _options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option) and not each.hidden)


def _name(option: click.Option) -> str:
    return max(option.opts, key=len)


def _row(option: click.Option) -> tuple[str, str]:
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    value = "" if option.is_flag else option.metavar or "|".join(map(str, choices))
    typed = " ".join(filter(None, (", ".join((*option.opts, *option.secondary_opts)), value)))
    told = " ".join((option.help or "").split())
    if option.show_default:
        told = f"{told} [default: {option.default}]"
    return code(typed), _PLAIN.sub(lambda found: found[0].replace("[", r"\[", 1), told)
