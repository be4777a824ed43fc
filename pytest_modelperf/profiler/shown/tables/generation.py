"""The table of generations: the first token, the tokens after it, and what the state takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytest_modelperf.profiler.generation import (
    NamedFigures,
    WholeGeneration,
    named_figures,
    whole_generations,
)
from pytest_modelperf.profiler.records import CaseProfile, GenerationFigures
from pytest_modelperf.profiler.shown.tables.measured import CASE_COLUMN, format_percentile
from pytest_modelperf.report.tables import Column, Table, table_of
from pytest_modelperf.stats.records import Percentile, Slope
from pytest_modelperf.text.units import UNKNOWN, format_bytes, format_count, format_rate

_TITLE = "generation"
# For a phase that was not asked for, or that the model lacks.
_ABSENT = "-"


def generation_table(cases: Sequence[CaseProfile]) -> Table | None:
    """The table of the generations that the cases are phases of."""
    return table_of_generations(named_figures(cases))


def table_of_generations(named: Iterable[NamedFigures]) -> Table | None:
    """A row for each generation; None if there are none."""
    found = whole_generations(named)
    if not found:
        return None
    return _measured(found) if any(map(_has_run, found)) else _counted(found)


def _has_run(made: WholeGeneration) -> bool:
    figures = (made.prefill, made.step)
    return any(each is not None and (each.ttft or each.token_p50) for each in figures)


def _measured(found: Sequence[WholeGeneration]) -> Table:
    caption = (
        "first token: the median of the prefill; token: the median of the steps\n"
        "growth: how much longer each step takes than the one before it"
    )
    confidence = [m.step.growth.confidence for m in found if m.step and m.step.growth]
    if confidence:
        caption += f", ± its {100 * confidence[0]:.4g} % interval"
    return table_of(
        _TITLE,
        found,
        (CASE_COLUMN, lambda made: made.id),
        (
            Column("first token ms"),
            lambda made: _ABSENT if made.prefill is None else _ms(made.prefill.ttft),
        ),
        (Column("token ms"), _of_step(lambda step: _ms(step.token_p50))),
        (Column("p95"), _of_step(lambda step: _ms(step.token_p95))),
        (Column("growth ns"), _of_step(lambda step: _growth(step.growth))),
        (Column("tokens/s"), _of_step(lambda step: format_rate(step.tokens_per_second))),
        (Column("cache/token"), _cache),
        caption=caption,
    )


def _counted(found: Sequence[WholeGeneration]) -> Table:
    return table_of(
        _TITLE,
        found,
        (CASE_COLUMN, lambda made: made.id),
        (Column("MACs of the first step"), _of_step(lambda step: format_count(step.first_macs))),
        (Column("of the last step"), _of_step(lambda step: format_count(step.last_macs))),
        (Column("cache/token"), _cache),
    )


def _of_step(show: Callable[[GenerationFigures], str]) -> Callable[[WholeGeneration], str]:
    return lambda made: _ABSENT if made.step is None else show(made.step)


def _cache(made: WholeGeneration) -> str:
    figures = made.step or made.prefill
    return format_bytes(None if figures is None else figures.cache_bytes)


def _ms(percentile: Percentile | None) -> str:
    return UNKNOWN if percentile is None else format_percentile(percentile)


def _growth(slope: Slope | None) -> str:
    if slope is None:
        return UNKNOWN
    return f"{slope.ns_per_step:+,.0f} ± {slope.high - slope.ns_per_step:,.0f}"
