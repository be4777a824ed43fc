"""The table of generations: the first token, the tokens after it, and what the state takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.profiler.generation import (
    NamedFigures,
    WholeGeneration,
    named_figures,
    whole_generations,
)
from pytest_modelperf.profiler.records import CaseProfile, GenerationFigures
from pytest_modelperf.profiler.shown.tables.measured import CASE_COLUMN, format_percentile
from pytest_modelperf.report.tables import Column, Table, transpose_table
from pytest_modelperf.stats.records import Percentile, Slope
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_bytes, format_count, format_rate

_TITLE = "generation"
# For a phase that was not asked for, or that the model lacks.
_ABSENT = "-"


def generation_tables(cases: Sequence[CaseProfile]) -> tuple[Table, ...]:
    """The tables of the generations that the cases are phases of."""
    return tables_of_generations(named_figures(cases))


def tables_of_generations(named: Iterable[NamedFigures]) -> tuple[Table, ...]:
    """A row for each generation, or a column where that is narrower; empty if there are none."""
    found = whole_generations(named)
    if not found:
        return ()
    table = _measured(found) if any(map(_has_run, found)) else _counted(found)
    return table, transpose_table(table), table


def _has_run(made: WholeGeneration) -> bool:
    figures = (made.prefill, made.step)
    return any(each is not None and (each.ttft or each.token_p50) for each in figures)


def _measured(found: Sequence[WholeGeneration]) -> Table:
    titles = ("first token ms", "token ms", "p95", "growth ns", "tokens/s", "cache/token")
    rows = tuple(
        (
            printable(made.id),
            _ABSENT if made.prefill is None else _ms(made.prefill.ttft),
            *((_ABSENT,) * 4 if made.step is None else _step_cells(made.step)),
            _cache(made),
        )
        for made in found
    )
    caption = (
        "first token: the median of the prefill; token: the median of the steps\n"
        "growth: how much longer each step takes than the one before it"
    )
    confidence = [m.step.growth.confidence for m in found if m.step and m.step.growth]
    if confidence:
        caption += f", ± its {100 * confidence[0]:.4g} % interval"
    return Table(_TITLE, (CASE_COLUMN, *map(Column, titles)), rows, None, caption)


def _counted(found: Sequence[WholeGeneration]) -> Table:
    titles = ("MACs of the first step", "of the last step", "cache/token")
    rows = tuple(
        (
            printable(made.id),
            _ABSENT if made.step is None else format_count(made.step.first_macs),
            _ABSENT if made.step is None else format_count(made.step.last_macs),
            _cache(made),
        )
        for made in found
    )
    return Table(_TITLE, (CASE_COLUMN, *map(Column, titles)), rows)


def _step_cells(step: GenerationFigures) -> tuple[str, str, str, str]:
    return (
        _ms(step.token_p50),
        _ms(step.token_p95),
        _growth(step.growth),
        format_rate(step.tokens_per_second),
    )


def _cache(made: WholeGeneration) -> str:
    figures = made.step or made.prefill
    return format_bytes(None if figures is None else figures.cache_bytes)


def _ms(percentile: Percentile | None) -> str:
    return UNKNOWN if percentile is None else format_percentile(percentile)


def _growth(slope: Slope | None) -> str:
    if slope is None:
        return UNKNOWN
    return f"{slope.ns_per_step:+,.0f} ± {slope.high - slope.ns_per_step:,.0f}"
