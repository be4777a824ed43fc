"""A comparison as Markdown, for a comment on a pull request or the summary of a job."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.tables import (
    case_table,
    has_output_figures,
    has_times,
    layer_difference_table,
    layer_type_change_table,
    layers_that_explain,
    metric_tables,
    output_table,
    shows_graphs,
    type_difference_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    describe_facts,
    describe_run,
    describe_verdict,
    failure_lines,
    is_quiet,
    word_of_reasons,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.report.markdown import code, escape_markdown, folded, markdown_table
from pytest_modelperf.report.tables import Table

# The first reasons explain most; the others are in the folded part.
_MAX_REASONS = 6


def render_markdown(comparison: Comparison, wording: Wording) -> str:
    """The whole report: verdict and figures visible, explanations folded."""
    return "\n\n".join(_blocks(comparison, wording)) + "\n"


def case_blocks(case: CaseComparison, title: str, wording: Wording) -> Iterator[str]:
    """A case below its title: its figures visible, explanations folded."""
    yield f"**{title}**"
    if case.failure is not None:
        yield f"<pre>{'<br>'.join(map(escape_markdown, failure_lines(case)))}</pre>"
    doubt = describe_doubt(case, wording)
    if doubt is not None:
        yield escape_markdown(doubt)
    if case.metrics:
        yield markdown_table(metric_tables(case)[0])
    if case.reasons:
        yield "\n".join(f"- {escape_markdown(reason)}" for reason in case.reasons[:_MAX_REASONS])
    yield from folded("Layers, outputs and how this was measured", _details(case, wording))


def _blocks(comparison: Comparison, wording: Wording) -> Iterator[str]:
    before, after = map(code, name_models((comparison.before, comparison.after)))
    yield f"### Model performance: {describe_run(comparison)}"
    yield (
        f"{before} → {after}"
        + "".join(f", on {escape_markdown(engine)}" for engine in comparison.engines)
    )
    is_one = len(comparison.cases) == 1
    if not is_one:
        yield markdown_table(case_table(comparison))
    for case in comparison.cases:
        sentence = escape_markdown(describe_verdict(case, comparison.confidence))
        title = f"{code(case.id)} {sentence}"
        if is_one or not is_quiet(case):
            yield from case_blocks(case, title, wording)
        else:
            table = markdown_table(metric_tables(case)[0])
            yield from folded(title, [table, *_details(case, wording)])


def _details(case: CaseComparison, wording: Wording) -> Iterator[str]:
    if has_times(case):
        yield _titled(type_difference_table(case))
        if layers_that_explain(case):
            yield _titled(layer_difference_table(case, wording))
    elif shows_graphs(case):
        yield _titled(layer_type_change_table(case))
    if has_output_figures(case):
        yield markdown_table(output_table(case))
    lines = [(word_of_reasons(case), reason) for reason in case.reasons[_MAX_REASONS:]]
    lines += describe_facts(case, wording)
    if lines:
        yield "\n".join(f"- {word}: {escape_markdown(text)}" for word, text in lines)


def _titled(table: Table) -> str:
    title = f"{table.title[:1].upper()}{table.title[1:]}:\n\n" if table.title else ""
    return f"{title}{markdown_table(table)}"
