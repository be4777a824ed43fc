"""A comparison as Markdown, for a comment on a pull request or the summary of a job.

Names come from model files, and whoever sends a model in could have them obeyed. So whatever
Markdown or the site around it gives a meaning to is written as a character reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_modelperf.report.advice import describe_doubt
from pytest_modelperf.report.comparison_tables import (
    case_table,
    explains_layers,
    has_output_figures,
    has_times,
    layer_time_tables,
    layer_type_change_table,
    layer_type_time_tables,
    metric_tables,
    output_table,
    shows_graphs,
)
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.report.verdict_lines import (
    OF_COMMAND,
    OptionNames,
    describe_facts,
    describe_run,
    describe_verdict,
    failure_lines,
    is_quiet,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.verdicts import CaseComparison, Comparison

# What has a meaning in a line of CommonMark or of GitHub's dialect, and at its beginning.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$#\"']|^[-+=](?=[-+=\s]|$)")
_NUMBERED = re.compile(r"^([0-9]+)([.)])(?=\s|$)")
# What a site makes of plain text once it is rendered: mentions, references to issues, links. A
# character reference is undone by then, so a space of no width breaks them.
_LINKED = re.compile(r"(@|&#35;|GH-|www\.|://)(?=\S)", re.IGNORECASE)
_BREAK = "&#8203;"
# The first reasons are those that explain most; the others are behind the click.
_MAX_REASONS = 6


def render_markdown(comparison: Comparison) -> str:
    """The whole report: verdict and figures in sight, what explains them behind a click."""
    return "\n\n".join(_blocks(comparison)) + "\n"


def escape_markdown(text: str) -> str:
    """The text such that Markdown shows it as it is, in a line or in a cell of a table."""
    safe = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", printable(text).strip())
    safe = _NUMBERED.sub(lambda found: f"{found[1]}&#{ord(found[2])};", safe)
    return _LINKED.sub(lambda found: f"{found[1]}{_BREAK}", safe)


def code(name: str) -> str:
    """A name as it stands in the model. References work in the tag; in backticks they would not."""
    return f"<code>{escape_markdown(name)}</code>"


def markdown_table(table: Table) -> str:
    """A table in GitHub's dialect; without rows only what its caption says."""
    caption = escape_markdown(" ".join(table.caption.splitlines()))
    if not table.rows:
        return caption
    lines = [
        _row([escape_markdown(column.title) for column in table.columns]),
        _row(["---" if column.is_text else "---:" for column in table.columns]),
    ]
    lines += [_row(list(map(_cell, table.columns, row))) for row in table.rows]
    if table.total is not None:
        lines.append(_row([f"**{cell}**" if cell else "" for cell in table.total]))
    text = "\n".join(lines)
    return f"{text}\n\n{caption}" if caption else text


def case_blocks(
    case: CaseComparison, title: str, options: OptionNames = OF_COMMAND
) -> Iterator[str]:
    """A case below its title: its figures in sight, what explains them behind a click."""
    yield f"**{title}**"
    if case.failure is not None:
        yield f"<pre>{'<br>'.join(map(escape_markdown, failure_lines(case)))}</pre>"
    doubt = describe_doubt(case, options)
    if doubt is not None:
        yield escape_markdown(doubt)
    if case.metrics:
        yield markdown_table(metric_tables(case)[0])
    if case.reasons:
        yield "\n".join(f"- {escape_markdown(reason)}" for reason in case.reasons[:_MAX_REASONS])
    yield from folded("Layers, outputs and how this was measured", _details(case, options))


def folded(title: str, blocks: Iterable[str]) -> Iterator[str]:
    """Blocks behind a click; nothing where there are none."""
    inside = [block for block in blocks if block]
    if inside:
        yield f"<details><summary>{title}</summary>"
        yield from inside
        yield "</details>"


def _blocks(comparison: Comparison) -> Iterator[str]:
    yield f"### Model performance: {describe_run(comparison)}"
    yield (
        f"{code(comparison.before.name)} → {code(comparison.after.name)}"
        + "".join(f", on {escape_markdown(engine)}" for engine in comparison.engines)
    )
    is_one = len(comparison.cases) == 1
    if not is_one:
        yield markdown_table(case_table(comparison))
    for case in comparison.cases:
        sentence = escape_markdown(describe_verdict(case, comparison.confidence))
        title = f"{code(case.id)} {sentence}"
        if is_one or not is_quiet(case):
            yield from case_blocks(case, title)
        else:
            table = markdown_table(metric_tables(case)[0])
            yield from folded(title, [table, *_details(case, OF_COMMAND)])


def _details(case: CaseComparison, options: OptionNames) -> Iterator[str]:
    if has_times(case):
        yield _titled(layer_type_time_tables(case)[0])
        if explains_layers(case):
            yield _titled(layer_time_tables(case, options)[0])
    elif shows_graphs(case):
        yield _titled(layer_type_change_table(case))
    if has_output_figures(case):
        yield markdown_table(output_table(case))
    lines = [("why", reason) for reason in case.reasons[_MAX_REASONS:]]
    lines += describe_facts(case)
    if lines:
        yield "\n".join(f"- {word}: {escape_markdown(text)}" for word, text in lines)


def _titled(table: Table) -> str:
    title = f"{table.title[:1].upper()}{table.title[1:]}:\n\n" if table.title else ""
    return f"{title}{markdown_table(table)}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, text: str) -> str:
    return code(text) if column.is_name and text else escape_markdown(text)
