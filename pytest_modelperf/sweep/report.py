"""A sweep as a report: each configuration, the best of each model, and how throughput scales."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

from msgspec.structs import replace

from pytest_modelperf.comparing.figures import LATENCY, metric_title
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.report import comparison_report, doubt_blocks
from pytest_modelperf.comparing.tables import (
    TONES,
    has_times,
    layer_type_change_table,
    shows_graphs,
    type_difference_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    describe_metric,
    describe_verdict,
    verdict_word,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome
from pytest_modelperf.profiler.shown.case_page import case_drawn
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_facts import ModelRow, models_table, run_table
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.measured import (
    format_percentile,
    layer_type_time_table,
)
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.report.model import (
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import (
    Cell,
    Column,
    FilledColumn,
    Table,
    drop_blank_columns,
    table_of,
)
from pytest_modelperf.stats.records import Percentile, Ratio
from pytest_modelperf.sweep.records import (
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
    find_competing,
)
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_confidence,
    format_ms,
    format_rate,
    percent,
    signed_percent,
)
from pytest_modelperf.text.words import count_of, shorten_list

SWEEP_COLUMNS = (
    *("side", "model", "configuration", "batch_size", "cores", "streams", "dims"),
    *("outcome", "reason", "sweet_spot", "samples", "rounds"),
    *("p50_ms", "p50_low_ms", "p50_high_ms", "p95_ms", "p95_low_ms", "p95_high_ms"),
    *("items_per_second", "items_per_second_low", "items_per_second_high"),
    *("latency_ratio", "latency_ratio_low", "latency_ratio_high"),
    *("items_ratio", "items_ratio_low", "items_ratio_high"),
    *("phase", "prompt", "generate"),
)
# The model before and the model now, if there are two.
LABELS = ("A", "B")
_BEST, _EQUAL, _UNDECIDED = "<", "=", "?"
_MARKS = {"best": _BEST, "equal": _EQUAL, "undecided": _UNDECIDED, None: ""}
_LEAST_DIMS = 12
# The most configurations that a list names.
_MAX_NAMED = 6
_NS_PER_MS = 1e6

T = TypeVar("T")


def sweep_report(sweep: Sweep, wording: Wording, made: dt.datetime | None = None) -> Report:
    """Every configuration, the best ones, scaling, the layers at the best, and the method."""
    limit = "" if sweep.threshold_ms is None else _format_limit(sweep.threshold_ms)
    rule = [
        ("threshold", limit),
        ("confidence", format_confidence(sweep.confidence)),
        ("passes", f"{sweep.passes} in {sweep.seconds:.1f} s" if sweep.passes else ""),
    ]
    labelled = _labelled(sweep)
    return Report(
        title=" → ".join(name_models([side.model for side in sweep.sides])),
        headline=FAILED if sweep.has_failed else "",
        tone=Tone.BAD if sweep.has_failed else Tone.PLAIN,
        opening=(
            *starmap(_model_line, labelled),
            *_best_lines(sweep),
        ),
        blocks=(
            *_measured_blocks(sweep),
            *_failures(sweep),
            *_scaling_blocks(sweep),
            *_layer_sections(sweep, wording),
        ),
        closing=tuple(_closing(sweep)),
        facts=(
            models_table(
                ModelRow(label, side.model, side.engine.label if side.engine else "")
                for label, side in labelled
            ),
            run_table([sweep.machine], rule, made),
        ),
        sheet=Sheet(SWEEP_COLUMNS, tuple(_rows(sweep))),
        drawn=case_drawn(partial(_page_data, sweep)),
    )


def _page_data(sweep: Sweep) -> Mapping[str, Any]:
    # Most reports need no page, and what draws one takes time to import.
    from pytest_modelperf.sweep.page_data import sweep_data

    return sweep_data(sweep)


def _labelled(sweep: Sweep) -> list[tuple[str, SweepSide]]:
    """The sides with their labels; a model alone needs none."""
    labels = LABELS if len(sweep.sides) > 1 else ("",)
    return list(zip(labels, sweep.sides, strict=True))


def _model_line(label: str, side: SweepSide) -> Line:
    text = f"{label}  {describe_model(side.model)}".lstrip()
    return Line(text=text, is_bold=True, on=On.TEXT)


def _format_limit(threshold_ms: float) -> str:
    """`20 ms`, `0.5 ms`."""
    return f"{threshold_ms:.6g} ms"


def _closing(sweep: Sweep) -> Iterator[Line]:
    """How it was measured, and notes."""
    if not sweep.has_failed:
        yield Line(word="how", text=_method(sweep))
    if sweep.machine is not None:
        yield Line(text=describe_machine_line(sweep.machine), on=On.TEXT)
    engines = {
        label: describe_engine(side.engine)
        for label, side in _labelled(sweep)
        if side.engine is not None
    }
    if len({*engines.values()}) == 1:
        engines = {"": next(iter(engines.values()))}
    for label, text in engines.items():
        yield Line(word=label, text=text, on=On.TEXT)
    yield from lines_of(sweep.notes, "note", Tone.UNSURE)


def _method(sweep: Sweep) -> str:
    latencies = [(p.id, p.latency) for s in sweep.sides for p in s.points if p.latency is not None]
    rounds = sum(latency.rounds for _, latency in latencies)
    configurations = count_of(len(dict(latencies)), "configuration")
    return (
        f"{count_of(rounds, 'round')} in {sweep.passes} pass{'es' if sweep.passes != 1 else ''} "
        f"over {configurations} in random order, each with a fresh session, "
        f"{sweep.seconds:.1f} s; each interval holds its own figure with "
        f"{format_confidence(sweep.confidence)} confidence"
    )


# -- the configurations


def _measured_blocks(sweep: Sweep) -> Iterator[ReportBlock]:
    """A table of each model, and one of the change between them."""
    if sweep.has_failed:
        return
    names = name_models([side.model for side in sweep.sides])
    for name, (label, side) in zip(names, _labelled(sweep), strict=True):
        title = f"{label}: {name}" if label else "latency and throughput"
        is_last = side is sweep.sides[-1]
        yield _side_rows(side, title, _caption(sweep) if is_last else "")
    if sweep.changes:
        yield Rows(_change_table(sweep))


def _side_rows(side: SweepSide, title: str, caption: str) -> Rows:
    """A row for each measured configuration of a model."""
    points = [point for point in _ordered(side.points) if point.latency is not None]
    table = table_of(
        title,
        points,
        *_size_columns(_configuration_of),
        (Column("p50 ms"), _median),
        (Column("p95 ms", rank=1), _tail),
        (Column("items/s"), lambda point: _rate(point.throughput)),
        (Column("", is_text=True), lambda point: _MARKS[side.spot.role(point.id)]),
        caption=caption,
    )
    tones = (Tone.GOOD if point.id == side.spot.best else Tone.PLAIN for point in points)
    return Rows(drop_blank_columns(table), tuple(tones))


def _change_table(sweep: Sweep) -> Table:
    """A row for each configuration of both sides with the change, from passes that ran both."""
    by_id = [{point.id: point for point in side.points} for side in sweep.sides]
    shown = {
        point.configuration.id: point.configuration for point in _ordered(sweep.sides[0].points)
    }
    changes = [change for name in shown for change in sweep.changes if change.id == name]

    def where(change: PointChange) -> Configuration:
        return shown[change.id]

    def median_of(place: int) -> Callable[[PointChange], str]:
        return lambda change: _plain_median(by_id[place][change.id])

    table = table_of(
        "B over A",
        changes,
        *_size_columns(where),
        (Column("A p50 ms", rank=1), median_of(0)),
        (Column("B p50 ms", rank=1), median_of(1)),
        (Column("latency"), lambda change: signed_percent(change.latency.value - 1)),
        (Column("interval"), lambda change: _interval(change.latency)),
        (Column("items/s"), lambda change: signed_percent(change.throughput.value - 1)),
        (Column("interval"), lambda change: _interval(change.throughput)),
        caption=f"interval: {format_confidence(sweep.confidence)}, of pairs of rounds",
    )
    return drop_blank_columns(table)


def _configuration_of(point: SweepPoint) -> Configuration:
    return point.configuration


def _ordered(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """By the phase of a generation and its lengths, then batch, cores and streams."""
    return sorted(points, key=lambda point: _order(point.configuration))


def _order(configuration: Configuration) -> tuple[object, ...]:
    case = configuration.case
    return *_lengths(case), case.batch_size, case.cores, configuration.streams, case.dims


def _lengths(case: Case) -> tuple[bool, int, int]:
    """The phase and the lengths of a generation: prefills come first."""
    phase = case.phase
    if phase is None:
        return False, 0, 0
    return phase.phase is Phase.STEP, phase.prompt, phase.generate


def _size_columns(where: Callable[[T], Configuration]) -> Iterator[FilledColumn[T]]:
    yield Column("batch"), lambda each: str(where(each).case.batch_size)
    yield Column("cores"), lambda each: str(where(each).case.cores)
    yield Column("streams"), lambda each: str(where(each).streams)
    dims = Column("dims", is_name=True, least=_LEAST_DIMS)
    yield dims, lambda each: " ".join(_describe_sizes(where(each).case))


def _describe_sizes(case: Case) -> Iterator[str]:
    """The sizes of dimensions, and the phase of a generation: `seq=64`, `prompt64-prefill`."""
    yield from (f"{name}={size}" for name, size in case.dims)
    if case.phase is not None:
        yield case.phase.id


def _median(point: SweepPoint) -> str:
    """`4.930 ± 0.8 %`."""
    median = _percentile(point, 50.0)
    if median is None:
        return ""
    text = format_percentile(median)
    return text if median.value_ns is None else f"{text} ± {_share(median.half_width)}"


def _plain_median(point: SweepPoint) -> str:
    median = _percentile(point, 50.0)
    return "" if median is None else format_percentile(median)


def _tail(point: SweepPoint) -> str:
    tail = _percentile(point, 95.0)
    return "" if tail is None else format_percentile(tail)


def _percentile(point: SweepPoint, percent_: float) -> Percentile | None:
    return None if point.latency is None else point.latency.percentile(percent_)


def _rate(rate: Ratio | None) -> str:
    """Items per second, and the larger side of the interval: `812.3 ± 0.8 %`."""
    return UNKNOWN if rate is None else f"{format_rate(rate.value)} ± {_half_width(rate)}"


def _half_width(ratio: Ratio) -> str:
    """The larger side of the interval, relative to the value."""
    if ratio.low is None or ratio.high is None or not ratio.value:
        return UNKNOWN
    return _share(max(ratio.high - ratio.value, ratio.value - ratio.low) / ratio.value)


def _share(half_width: float | None) -> str:
    """`0.8 %`; `?` if it is unknown, `>100 %` if it is wider than the value."""
    if half_width is None:
        return UNKNOWN
    return ">100 %" if half_width > 1 else percent(half_width)


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"


def _describe_ratio(ratio: Ratio) -> str:
    """`+11.8 % (+10.2 … +13.1 %)`."""
    interval = _interval(ratio)
    change = signed_percent(ratio.value - 1)
    return f"{change} ({interval})" if interval else change


def _caption(sweep: Sweep) -> str:
    level = format_confidence(sweep.confidence)
    lines = [f"±: the larger side of the {level} interval"]
    latencies = [p.latency for side in sweep.sides for p in side.points if p.latency is not None]
    if any(each.percentile(p).value_ns is None for each in latencies for p in (50.0, 95.0)):
        lines.append("(n): it takes n samples to tell; a larger max-seconds makes time for more")
    lines.append("; ".join(_legend(sweep)))
    return "\n".join(line for line in lines if line)


def _legend(sweep: Sweep) -> Iterator[str]:
    spots = [side.spot for side in sweep.sides]
    limit = "" if sweep.threshold_ms is None else f" within {_format_limit(sweep.threshold_ms)}"
    if any(spot.best is not None for spot in spots):
        yield f"{_BEST} most items/s{limit}"
    if any(spot.equals for spot in spots):
        yield f"{_EQUAL} cannot be told from it"
    if any(spot.undecided for spot in spots):
        yield f"{_UNDECIDED} may be{limit} or beyond"


# -- configurations that were not measured


def _failures(sweep: Sweep) -> Iterator[ReportBlock]:
    """The configurations without a result and their reasons; the same reason is said once."""
    for text in unmeasured_reasons(sweep):
        yield Failure(text)


def unmeasured_reasons(sweep: Sweep) -> Iterator[str]:
    about: dict[tuple[str, str], dict[str, list[str]]] = {}
    for label, side in _labelled(sweep):
        for point in _ordered(side.points):
            if point.latency is None:
                names = about.setdefault((_outcome_word(point), point.reason or ""), {})
                names.setdefault(point.id, []).append(label)
    for (word, reason), ids in about.items():
        named = [
            config_id if len(on) == len(sweep.sides) else f"{on[0]} {config_id}"
            for config_id, on in ids.items()
        ]
        yield f"{_listed(named)}: {word}{f': {reason}' if reason else ''}"


def _outcome_word(point: SweepPoint) -> str:
    """`measured`, `skipped` or `failed`."""
    if point.latency is not None:
        return "measured"
    return (point.outcome or Outcome.FAILED).value


def _listed(names: Sequence[str]) -> str:
    return shorten_list(names, _MAX_NAMED)


# -- the best


def _best_lines(sweep: Sweep) -> Iterator[Line]:
    if not sweep.has_failed:
        for label, side in _labelled(sweep):
            yield from _best_of(sweep, side, label)
        yield from _change_at_best(sweep)


def _best_of(sweep: Sweep, side: SweepSide, label: str) -> Iterator[Line]:
    """The best of a side, what cannot be told from it, and what may be within the threshold."""
    spot = side.spot
    whom = f" for {label}" if label else ""
    limit = "" if sweep.threshold_ms is None else _format_limit(sweep.threshold_ms)
    competing = find_competing(_ordered(side.points))
    if not competing:
        is_any = any(point.latency is not None for point in side.points)
        text = f"best{whom}: {'no step' if is_any else 'none'} could be measured"
        yield Line(text=text, tone=Tone.BAD)
        return
    if spot.best is None:
        quickest = min(competing, key=lambda point: point.median_ns)
        text = (
            f"no configuration is surely within {limit}{whom}; the quickest is "
            f"{quickest.id} {_typical(quickest)}"
        )
        yield Line(text=text, tone=Tone.UNSURE, is_bold=True)
    else:
        within = f" (within {limit})" if limit else ""
        text = f"best{whom}: {_describe(side.point(spot.best))}{within}"
        yield Line(text=text, tone=Tone.GOOD, is_bold=True)
    if spot.equals:
        yield Line(text=f"cannot be told from it: {_listed(spot.equals)}")
    if spot.undecided:
        named = [f"{i} {_typical(side.point(i))}" for i in spot.undecided]
        yield Line(text=f"may be within {limit} or beyond: {_listed(named)}")
    if spot.equals or any(_gives_more(side, config_id) for config_id in spot.undecided):
        yield Line(text="a larger max-seconds makes time to tell more of them apart")


def _typical(point: SweepPoint) -> str:
    """`at 4.930 ms`, its median; with too few samples for that, `with a mean of 4.930 ms`."""
    word = "at" if point.p50_ms is not None else "with a mean of"
    return f"{word} {format_ms(point.median_ns)} ms"


def _gives_more(side: SweepSide, config_id: str) -> bool:
    """Whether it would be the best of its side if it were within the threshold."""
    if side.spot.best is None:
        return True
    rate, best = side.point(config_id).throughput, side.point(side.spot.best).throughput
    return rate is None or best is None or rate.value > best.value


def _describe(point: SweepPoint) -> str:
    """`b4-c2-s2, 812.3 items/s at 4.930 ms`."""
    rate = None if point.throughput is None else point.throughput.value
    p50_ns = None if point.latency is None else point.latency.percentile(50.0).value_ns
    return f"{point.id}, {format_rate(rate)} items/s at {format_ms(p50_ns)} ms"


def _change_at_best(sweep: Sweep) -> Iterator[Line]:
    """B against A, if both models are best at the same configuration."""
    bests = {side.spot.best for side in sweep.sides}
    if len(sweep.sides) == 1 or len(bests) > 1:
        return
    for change in sweep.changes:
        if change.id in bests:
            text = (
                f"B against A at {change.id}: latency {_describe_ratio(change.latency)}, "
                f"items/s {_describe_ratio(change.throughput)}"
            )
            yield Line(text=text)


# -- scaling


def _scaling_blocks(sweep: Sweep) -> Iterator[ReportBlock]:
    tables = [_scaling_table(side, label) for label, side in _labelled(sweep)]
    known = [table for table in tables if table is not None]
    for table in known:
        yield Rows(table if table is known[-1] else replace(table, caption=""))


def _scaling_table(side: SweepSide, label: str) -> Table | None:
    """The gain from more of each thing, with all else as in the best; None if nothing is known.

    If there is no best, all else is as in the first configuration. The last column has the least
    and the largest gain if several configurations show it.
    """
    anchor = _anchor(side)
    if anchor is None:
        return None
    where = {point.id: point.configuration for point in side.points}
    groups: dict[tuple[str, float], list[Scaling]] = {}
    for scaling in side.scaling:
        groups.setdefault((scaling.of, scaling.factor), []).append(scaling)
    shown = [
        scaling
        for scaling in side.scaling
        if where[scaling.base].all_else(scaling.of) == anchor.all_else(scaling.of)
    ]
    if not shown:
        return None

    def everywhere(scaling: Scaling) -> str:
        gains = [each.gain.value for each in groups[scaling.of, scaling.factor]]
        return f"x{min(gains):.2f} … {max(gains):.2f}" if len(gains) > 1 else ""

    what = "the best" if side.spot.best is not None else "the first"
    table = table_of(
        f"scaling{f' of {label}' if label else ''}, all else as in {what}, {anchor.id}",
        shown,
        (Column("more of", is_text=True), lambda each: f"{each.of} x{each.factor:g}"),
        (Column("from", is_name=True), lambda each: each.base),
        (Column("to", is_name=True), lambda each: each.id),
        (Column("items/s"), lambda each: f"x{each.gain.value:.2f} ± {_half_width(each.gain)}"),
        (
            Column("efficiency"),
            lambda each: "" if each.efficiency is None else f"{100 * each.efficiency:.0f} %",
        ),
        (Column("everywhere"), everywhere),
        caption=(
            "efficiency: the share of what there would be if all of the cores paid off\n"
            "everywhere: the least and the most, whatever all else is"
        ),
    )
    return drop_blank_columns(table)


def _anchor(side: SweepSide) -> Configuration | None:
    if side.spot.best is not None:
        return side.point(side.spot.best).configuration
    first = next((p for p in _ordered(side.points) if p.latency is not None), None)
    return None if first is None else first.configuration


# -- the layers at the best


def _layer_sections(sweep: Sweep, wording: Wording) -> Iterator[Section]:
    """The layers at the best: a text has the types, a page everything about them."""
    if sweep.comparison is not None:
        for case in sweep.comparison.cases:
            yield _compared_section(case, sweep.comparison, wording)
        yield from _of_page(comparison_report(sweep.comparison, wording))
    if sweep.profile is not None:
        for profiled in sweep.profile.cases:
            blocks = tuple(_profiled_blocks(profiled))
            yield Section(title=f"at {profiled.case.id}", blocks=blocks, on=On.TEXT)
        yield from _of_page(profile_report(sweep.profile))


def _of_page(report: Report) -> Iterator[Section]:
    for block in report.blocks:
        if isinstance(block, Section) and On.PAGE in block.on:
            yield replace(block, on=On.PAGE)


def _compared_section(case: CaseComparison, comparison: Comparison, wording: Wording) -> Section:
    word, sentence = verdict_word(case), describe_verdict(case, comparison.confidence)
    blocks = [*doubt_blocks(case, wording)]
    p50 = case.metric(f"{LATENCY}p50")
    if p50 is not None and metric_title(p50.name) not in sentence:
        text = describe_metric(p50, comparison.confidence)
        blocks.insert(0, Paragraph((Line(text=text),)))
    if has_times(case):
        blocks.append(Rows(type_difference_table(case)))
    elif shows_graphs(case):
        blocks.append(Rows(layer_type_change_table(case)))
    return Section(
        title=f"at {case.id}",
        word=word,
        sentence=sentence.removeprefix(word).lstrip(":, "),
        tone=TONES[word],
        blocks=tuple(blocks),
        on=On.TEXT,
    )


def _profiled_blocks(profiled: CaseProfile) -> Iterator[ReportBlock]:
    """The layers of the best, or why it has none."""
    measured = profiled.measured
    if measured is None:
        yield Failure(f"{profiled.outcome.value}: {profiled.reason}")
        return
    if profiled.has_layer_times:
        yield Rows(layer_type_time_table(profiled))
    yield Paragraph(lines_of(measured.notes, "note", Tone.UNSURE))


# -- CSV


def _rows(sweep: Sweep) -> Iterator[tuple[Cell, ...]]:
    """All configurations of all sides, in the requested order; rows of B have ratios B over A."""
    changes = {change.id: change for change in sweep.changes}
    for label, side in zip(LABELS, sweep.sides, strict=False):
        for point in side.points:
            change = changes.get(point.id) if side is sweep.sides[-1] else None
            role = side.spot.role(point.id)
            yield (
                *(label, side.model.name, *_sizes(point), _outcome_word(point), point.reason, role),
                *_figures(point),
                *_ratio(None if change is None else change.latency),
                *_ratio(None if change is None else change.throughput),
                *_phase(point.configuration.case),
            )


def _sizes(point: SweepPoint) -> tuple[Cell, ...]:
    case = point.configuration.case
    dims = " ".join(f"{name}={size}" for name, size in case.dims)
    return point.id, case.batch_size, case.cores, point.configuration.streams, dims


def _figures(point: SweepPoint) -> Iterator[Cell]:
    latency = point.latency
    yield from (None, None) if latency is None else (latency.samples, latency.rounds)
    for percent_ in (50.0, 95.0):
        found = _percentile(point, percent_)
        bounds = (None,) * 3 if found is None else (found.value_ns, found.low_ns, found.high_ns)
        yield from (None if ns is None else ns / _NS_PER_MS for ns in bounds)
    yield from _ratio(point.throughput)


def _ratio(ratio: Ratio | None) -> tuple[Cell, ...]:
    return (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)


def _phase(case: Case) -> tuple[Cell, ...]:
    phase = case.phase
    return (None,) * 3 if phase is None else (phase.phase.value, phase.prompt, phase.generate)
