"""A sweep as a report: the best of each model, its tables, and the layers at the best."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.figures import LATENCY, metric_title
from pytest_modelperf.comparing.page_data import compared_case, shown_comparisons
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
from pytest_modelperf.comparing.views import comparison_views
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome
from pytest_modelperf.profiler.shown.drawn import case_drawn
from pytest_modelperf.profiler.shown.facts import (
    ModelRow,
    describe_engine,
    describe_machine_line,
    models_table,
    run_table,
)
from pytest_modelperf.profiler.shown.names import case_options, engine_options, name_models
from pytest_modelperf.profiler.shown.page_data import (
    LABELS,
    model_entry,
    profile_case,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    change_entry,
    point_entry,
)
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.cases import layer_type_time_table
from pytest_modelperf.profiler.shown.tables.layers import describe_model
from pytest_modelperf.profiler.shown.views import profile_views, ratio_cells, ratio_series
from pytest_modelperf.report.charts import BarChart
from pytest_modelperf.report.model import (
    Code,
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
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.sweep.records import (
    Sweep,
    SweepPoint,
    SweepSide,
    choose_point,
    find_competing,
)
from pytest_modelperf.sweep.report_tables import (
    describe_ratio,
    format_limit,
    labelled_sides,
    measured_blocks,
    ordered_points,
    percentile_of,
    scaling_blocks,
)
from pytest_modelperf.text.units import format_confidence, format_ms, format_rate
from pytest_modelperf.text.words import count_of, shell_path, shorten_list

SWEEP_COLUMNS = (
    *("side", "model", "configuration", "batch_size", "cores", "streams", "dims"),
    *("outcome", "reason", "sweet_spot", "samples", "rounds"),
    *("p50_ms", "p50_low_ms", "p50_high_ms", "p95_ms", "p95_low_ms", "p95_high_ms"),
    *("items_per_second", "items_per_second_low", "items_per_second_high"),
    *("latency_ratio", "latency_ratio_low", "latency_ratio_high"),
    *("items_ratio", "items_ratio_low", "items_ratio_high"),
    *("phase", "prompt", "generate"),
)
# The most configurations that a list names.
_MAX_NAMED = 6
_NS_PER_MS = 1e6


def sweep_report(sweep: Sweep, wording: Wording, made: dt.datetime | None = None) -> Report:
    limit = "" if sweep.threshold_ms is None else format_limit(sweep.threshold_ms)
    rule = [
        ("threshold", limit),
        ("confidence", format_confidence(sweep.confidence)),
        ("passes", f"{sweep.passes} in {sweep.seconds:.1f} s" if sweep.passes else ""),
    ]
    labelled = labelled_sides(sweep)
    return Report(
        title=" → ".join(name_models([side.model for side in sweep.sides])),
        headline=FAILED if sweep.has_failed else "",
        tone=Tone.BAD if sweep.has_failed else Tone.PLAIN,
        opening=(
            *starmap(_model_line, labelled),
            *(replace(line, on=On.TEXT) for line in _best_lines(sweep)),
            *_conditions(sweep, On.PAGE),
        ),
        findings=tuple(_findings(sweep)),
        blocks=(
            *measured_blocks(sweep),
            *(Failure(text, on=On.TEXT) for text in unmeasured_reasons(sweep)),
            *scaling_blocks(sweep),
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
        sheet=configuration_sheet(sweep),
        drawn=case_drawn(partial(sweep_data, sweep), leading="chart"),
    )


def configuration_sheet(sweep: Sweep) -> Sheet:
    """Return a row for each configuration of each side."""
    return Sheet(SWEEP_COLUMNS, tuple(_rows(sweep)))


def _model_line(label: str, side: SweepSide) -> Line:
    text = f"{label}  {describe_model(side.model)}".lstrip()
    return Line(text=text, is_bold=True, on=On.TEXT)


def _closing(sweep: Sweep) -> Iterator[Line]:
    if not sweep.has_failed:
        yield Line(word="how", text=_method(sweep))
    yield from _conditions(sweep, On.TEXT)
    yield from lines_of(sweep.notes, "note", Tone.UNSURE)


def _conditions(sweep: Sweep, on: On) -> Iterator[Line]:
    """Yield the machine and the engines, which a page begins with and a text ends with."""
    if sweep.machine is not None:
        yield Line(text=describe_machine_line(sweep.machine), on=on)
    engines = {
        label: describe_engine(side.engine)
        for label, side in labelled_sides(sweep)
        if side.engine is not None
    }
    if len({*engines.values()}) == 1:
        engines = {"": next(iter(engines.values()))}
    for label, text in engines.items():
        yield Line(word=label, text=text, on=on)


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


# -- configurations that were not measured


class Unmeasured(Struct, frozen=True):
    """The configurations that were not measured for the same reason."""

    names: tuple[str, ...]
    word: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"{self.word}{f': {self.reason}' if self.reason else ''}"


def unmeasured_reasons(sweep: Sweep) -> Iterator[str]:
    return (f"{_listed(each.names)}: {each.sentence}" for each in _unmeasured(sweep))


def _unmeasured(sweep: Sweep) -> Iterator[Unmeasured]:
    about: dict[tuple[str, str], dict[str, list[str]]] = {}
    for label, side in labelled_sides(sweep):
        for point in ordered_points(side.points):
            if point.latency is None:
                names = about.setdefault((_outcome_word(point), point.reason or ""), {})
                names.setdefault(point.id, []).append(label)
    for (word, reason), ids in about.items():
        named = (
            config_id if len(on) == len(sweep.sides) else f"{on[0]} {config_id}"
            for config_id, on in ids.items()
        )
        yield Unmeasured(tuple(named), word, reason)


def _outcome_word(point: SweepPoint) -> str:
    if point.latency is not None:
        return "measured"
    return (point.outcome or Outcome.FAILED).value


def _listed(names: Sequence[str]) -> str:
    return shorten_list(names, _MAX_NAMED)


# -- the best configuration, and the findings of a page


def _findings(sweep: Sweep) -> Iterator[Section]:
    """Yield the configurations missing from the chart, and the best of each model."""
    missing = [*_unmeasured(sweep)]
    if missing:
        count = count_of(sum(len(each.names) for each in missing), "configuration")
        lines = lines_of(f"{', '.join(each.names)}: {each.sentence}" for each in missing)
        yield Section(
            title=count,
            word=FAILED,
            sentence="could not be measured: missing from the chart",
            tone=Tone.BAD,
            blocks=(Paragraph(lines),),
        )
    if sweep.has_failed:
        return
    for label, side in labelled_sides(sweep):
        first, *others = _best_of(sweep, side, label)
        best = side.spot.best
        yield Section(
            title=": ".join(filter(None, (label, best or side.model.name))),
            word="" if best is None else "best",
            sentence=first.text if best is None else first.text.partition(f"{best}, ")[2],
            tone=first.tone,
            blocks=(Paragraph(tuple(others)), *(() if label else _profile_best(side))),
        )
    at_best = Paragraph(tuple(_change_at_best(sweep)))
    if not at_best.is_empty:
        yield Section(title=" → ".join(LABELS), blocks=(at_best,))


def _profile_best(side: SweepSide) -> Iterator[Code]:
    """Yield the command that shows the layers of the best configuration."""
    if side.spot.best is not None and side.engine is not None:
        words = [
            shell_path(side.model.path or side.model.name),
            *engine_options(side.engine.name),
            *case_options(side.point(side.spot.best).configuration.case),
        ]
        text = f"modelperf profile {' '.join(words)}"
        yield Code(f"see the layers at {side.spot.best}", text, is_command=True)


def _best_lines(sweep: Sweep) -> Iterator[Line]:
    if not sweep.has_failed:
        for label, side in labelled_sides(sweep):
            yield from _best_of(sweep, side, label)
        yield from _change_at_best(sweep)


def _best_of(sweep: Sweep, side: SweepSide, label: str) -> Iterator[Line]:
    spot = side.spot
    whom = f" for {label}" if label else ""
    limit = "" if sweep.threshold_ms is None else format_limit(sweep.threshold_ms)
    competing = find_competing(ordered_points(side.points))
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
        yield Line(text=f"indistinguishable from it: {_listed(spot.equals)}")
    if spot.undecided:
        named = [f"{i} {_typical(side.point(i))}" for i in spot.undecided]
        yield Line(text=f"may be within {limit} or beyond: {_listed(named)}")
    if spot.equals or any(_gives_more(side, config_id) for config_id in spot.undecided):
        yield Line(text="a larger max-seconds makes time to separate more of them")


def _typical(point: SweepPoint) -> str:
    """Return its median as `at 4.930 ms`, or with few samples `with a mean of 4.930 ms`."""
    word = "at" if point.p50_ms is not None else "with a mean of"
    return f"{word} {format_ms(point.median_ns)} ms"


def _gives_more(side: SweepSide, config_id: str) -> bool:
    """Whether only the threshold keeps it from being the best of its side."""
    if side.spot.best is None:
        return True
    rate, best = side.point(config_id).throughput, side.point(side.spot.best).throughput
    return rate is None or best is None or rate.value > best.value


def _describe(point: SweepPoint) -> str:
    """Return `b4-c2-s2, 812.3 items/s at 4.930 ms`."""
    rate = None if point.throughput is None else point.throughput.value
    p50_ns = None if point.latency is None else point.latency.percentile(50.0).value_ns
    return f"{point.id}, {format_rate(rate)} items/s at {format_ms(p50_ns)} ms"


def _change_at_best(sweep: Sweep) -> Iterator[Line]:
    bests = {side.spot.best for side in sweep.sides}
    if len(sweep.sides) == 1 or len(bests) > 1:
        return
    for change in sweep.changes:
        if change.id in bests:
            text = (
                f"B against A at {change.id}: latency {describe_ratio(change.latency)}, "
                f"items/s {describe_ratio(change.throughput)}"
            )
            yield Line(text=text)


# -- the layers at the best


def _layer_sections(sweep: Sweep, wording: Wording) -> Iterator[Section]:
    """Yield the layers: in a text the types at the best, and everything in a page."""
    best = _id_at_best(sweep)
    if sweep.comparison is not None:
        compared = sweep.comparison.cases
        for case in [each for each in compared if each.id == best] or compared:
            yield _compared_section(case, sweep.comparison, wording)
        yield from _of_page(comparison_report(sweep.comparison, wording))
    if sweep.profile is not None:
        cases = sweep.profile.cases
        for profiled in [each for each in cases if each.case.id == best] or cases:
            blocks = tuple(_profiled_blocks(profiled))
            yield Section(title=f"at {profiled.case.id}", blocks=blocks, on=On.TEXT)
        yield from _of_page(profile_report(sweep.profile))


def _id_at_best(sweep: Sweep) -> str | None:
    """Return the id of the case whose layers are shown first."""
    point = choose_point(sweep.sides[-1])
    return None if point is None else point.configuration.case.id


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
    measured = profiled.measured
    if measured is None:
        yield Failure(f"{profiled.outcome.value}: {profiled.reason}")
        return
    if profiled.has_layer_times:
        yield Rows(layer_type_time_table(profiled))
    yield Paragraph(lines_of(measured.notes, "note", Tone.UNSURE))


# -- CSV


def _rows(sweep: Sweep) -> Iterator[tuple[Cell, ...]]:
    """Yield all configurations of all sides. Rows of B have the ratios B over A."""
    changes = {change.id: change for change in sweep.changes}
    for label, side in zip(LABELS, sweep.sides, strict=False):
        for point in side.points:
            change = changes.get(point.id) if side is sweep.sides[-1] else None
            role = side.spot.role(point.id)
            yield (
                *(label, side.model.name, *_sizes(point), _outcome_word(point), point.reason, role),
                *_figures(point),
                *ratio_cells(None if change is None else change.latency),
                *ratio_cells(None if change is None else change.throughput),
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
        found = percentile_of(point, percent_)
        bounds = (None,) * 3 if found is None else (found.value_ns, found.low_ns, found.high_ns)
        yield from (None if ns is None else ns / _NS_PER_MS for ns in bounds)
    yield from ratio_cells(point.throughput)


def _phase(case: Case) -> tuple[Cell, ...]:
    phase = case.phase
    return (None,) * 3 if phase is None else (phase.phase.value, phase.prompt, phase.generate)


# -- a sweep as data for the scripts of a page


def sweep_data(sweep: Sweep) -> Entry:
    is_one = len(sweep.sides) == 1
    names = name_models([side.model for side in sweep.sides])
    model = model_entry(
        " → ".join(names),
        sides=[
            side_entry(
                "" if is_one else label, name, "" if side.engine is None else side.engine.label
            )
            for label, name, side in zip(LABELS, names, sweep.sides, strict=False)
        ],
        points=[[_sweep_point(point) for point in side.points] for side in sweep.sides],
        changes={c.id: change_entry(c.latency, c.throughput) for c in sweep.changes},
        cases=_cases_with_layers(sweep),
        threshold_ms=sweep.threshold_ms,
        start=_id_at_best(sweep),
    )
    return whole_page([model])


def _sweep_point(point: SweepPoint) -> Entry:
    figures = (
        None if point.latency is None else RanFigures(latency=point.latency, rounds=point.rounds)
    )
    return point_entry(
        point.id,
        point.configuration.case,
        figures,
        streams=point.configuration.streams,
        throughput=point.throughput,
        reason=point.reason,
    )


def _cases_with_layers(sweep: Sweep) -> list[Entry]:
    if sweep.comparison is not None:
        return [compared_case(each, 2) for each in shown_comparisons(sweep.comparison)]
    return [] if sweep.profile is None else [profile_case(case) for case in sweep.profile.cases]


def sweep_views(sweep: Sweep, report: Callable[[], Report]) -> Views:
    """Return the views. The `report` depends on the words of the interface.

    The layers are those at the best configuration, unless all were measured.
    """
    layers = Views(report, {}, {})
    if sweep.profile is not None:
        layers = profile_views(sweep.profile, report)
    elif sweep.comparison is not None:
        layers = comparison_views(sweep.comparison, report)
    return Views(
        report=report,
        sheets={"configurations": lambda: configuration_sheet(sweep), **layers.sheets},
        charts={
            "configurations": lambda: _chart(sweep, "items/s", lambda point: point.throughput),
            "latency": lambda: _chart(sweep, "ms", _latency),
            **layers.charts,
        },
    )


def _chart(sweep: Sweep, unit: str, read: Callable[[SweepPoint], Ratio | None]) -> BarChart:
    """Return a bar for each configuration and side."""
    sides = [{point.id: point for point in side.points} for side in sweep.sides]
    ids = tuple(dict.fromkeys(config_id for side in sides for config_id in side))
    names = name_models([side.model for side in sweep.sides])
    series = tuple(
        ratio_series(name, [read(points[each]) if each in points else None for each in ids])
        for name, points in zip(names, sides, strict=True)
    )
    return BarChart(f"configurations of {' → '.join(names)}", unit, ids, series)


def _latency(point: SweepPoint) -> Ratio | None:
    if point.p50_ms is None:
        return None
    return Ratio(point.p50_ms, *(point.latency_interval_ms or (None, None)))
