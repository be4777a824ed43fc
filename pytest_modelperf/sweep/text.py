"""The terminal report of a sweep: its table, the best of each model, and scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.case_text import verdict_style, write_fact
from pytest_modelperf.comparing.figures import LATENCY, metric_title
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.tables import (
    has_times,
    layer_type_change_table,
    shows_graphs,
    type_difference_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    describe_metric,
    describe_verdict,
    failure_lines,
)
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.profiler.shown.tables.measured import layer_type_time_table
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.report.tables import table_width
from pytest_modelperf.sweep.records import Sweep, SweepPoint, SweepSide, find_competing
from pytest_modelperf.sweep.tables import (
    change_table,
    describe_ratio,
    format_limit,
    labels_of,
    ordered_points,
    row_styles,
    scaling_table,
    side_table,
    whole_table,
)
from pytest_modelperf.text.escaping import indented_lines, printable
from pytest_modelperf.text.units import format_confidence, format_ms, format_rate
from pytest_modelperf.text.words import count_of, shorten_list

# The most configurations that a list names.
_MAX_NAMED = 6


def render_sweep(sweep: Sweep, style: PageStyle) -> str:
    """The whole report: every configuration, the best ones, scaling, and the method."""
    page = style.page()
    for side, label in zip(sweep.sides, labels_of(sweep), strict=True):
        start = f"{label}  " if label else ""
        page.line(f"{start}{describe_model(side.model)}", "bold")
    if not sweep.has_failed:
        _write_tables(page, sweep)
    write_items(page, list(unmeasured_lines(sweep)), "red")
    if not sweep.has_failed:
        page.line("")
        for side, label in zip(sweep.sides, labels_of(sweep), strict=True):
            for text, look in _spot_sentences(sweep, side, f" for {label}" if label else ""):
                page.sentence(text, style=look, indent=4)
        _write_change_at_best(page, sweep)
        _write_scaling(page, sweep)
    _write_layers(page, sweep)
    page.line("")
    _write_method(page, sweep)
    return page.text()


def _write_tables(page: Page, sweep: Sweep) -> None:
    """Writes one table if it fits, else one for each model and one for the changes."""
    whole = whole_table(sweep)
    if len(sweep.sides) == 1:
        page.table(whole, whole_table(sweep, has_tail=False), row_styles=row_styles(whole))
        return
    if table_width(whole) <= page.width:
        page.table(whole, row_styles=row_styles(whole))
        return
    last = len(sweep.sides) - 1
    for index in range(len(sweep.sides)):
        wide, narrow = (
            side_table(sweep, index, has_tail=has_tail, has_caption=index == last)
            for has_tail in (True, False)
        )
        page.table(wide, narrow, row_styles=row_styles(wide))
    if sweep.changes:
        page.table(change_table(sweep))


def _write_scaling(page: Page, sweep: Sweep) -> None:
    last = len(sweep.sides) - 1
    for index, label in enumerate(labels_of(sweep)):
        table = scaling_table(sweep.sides[index], label, has_caption=index == last)
        if table is not None:
            page.table(table)


# -- configurations that were not measured


def unmeasured_lines(sweep: Sweep) -> Iterator[str]:
    """The configurations without a result and their reasons; the same reason has one line."""
    labels = labels_of(sweep)
    about: dict[tuple[str, str], dict[str, list[str]]] = {}
    for side, label in zip(sweep.sides, labels, strict=True):
        for point in ordered_points(side.points):
            if point.latency is None:
                names = about.setdefault((outcome_word(point), point.reason or ""), {})
                names.setdefault(point.id, []).append(label)
    for (word, reason), ids in about.items():
        named = [
            config_id if len(on) == len(labels) else f"{on[0]} {config_id}"
            for config_id, on in ids.items()
        ]
        yield from indented_lines(f"{_listed(named)}: {word}{f': {reason}' if reason else ''}")


def outcome_word(point: SweepPoint) -> str:
    """`measured`, `skipped` or `failed`."""
    if point.latency is not None:
        return "measured"
    return (point.outcome or Outcome.FAILED).value


def _listed(names: Sequence[str]) -> str:
    return printable(shorten_list(names, _MAX_NAMED))


# -- the best


def _spot_sentences(sweep: Sweep, side: SweepSide, whom: str) -> Iterator[tuple[str, str]]:
    """The best of a side, what cannot be told from it, and what may be within the threshold."""
    spot = side.spot
    limit = "" if sweep.threshold_ms is None else format_limit(sweep.threshold_ms)
    competing = find_competing(ordered_points(side.points))
    if not competing:
        is_any = any(point.latency is not None for point in side.points)
        yield f"best{whom}: {'no step' if is_any else 'none'} could be measured", "red"
        return
    if spot.best is None:
        quickest = min(competing, key=lambda point: point.median_ns)
        yield (
            (
                f"no configuration is surely within {limit}{whom}; the quickest is "
                f"{printable(quickest.id)} {_typical(quickest)}"
            ),
            "bold yellow",
        )
    else:
        within = f" (within {limit})" if limit else ""
        yield f"best{whom}: {_describe(side.point(spot.best))}{within}", "bold green"
    if spot.equals:
        yield f"  cannot be told from it: {_listed(spot.equals)}", ""
    if spot.undecided:
        named = [f"{i} {_typical(side.point(i))}" for i in spot.undecided]
        yield f"  may be within {limit} or beyond: {_listed(named)}", ""
    if spot.equals or any(_gives_more(side, config_id) for config_id in spot.undecided):
        yield "  a larger max-seconds makes time to tell more of them apart", ""


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
    return f"{printable(point.id)}, {format_rate(rate)} items/s at {format_ms(p50_ns)} ms"


def _write_change_at_best(page: Page, sweep: Sweep) -> None:
    """Writes B against A, if both models are best at the same configuration."""
    bests = {side.spot.best for side in sweep.sides}
    if len(sweep.sides) == 1 or len(bests) > 1:
        return
    for change in sweep.changes:
        if change.id in bests:
            page.sentence(
                f"B against A at {printable(change.id)}: latency {describe_ratio(change.latency)}, "
                f"items/s {describe_ratio(change.throughput)}",
                indent=4,
            )


# -- the layers at the best


def _write_layers(page: Page, sweep: Sweep) -> None:
    if sweep.comparison is not None:
        for case in sweep.comparison.cases:
            _write_comparison(page, case, sweep.comparison)
    if sweep.profile is not None:
        for profiled in sweep.profile.cases:
            _write_profiled(page, profiled)


def _write_profiled(page: Page, profiled: CaseProfile) -> None:
    """Writes the layers of the best, or why it has none."""
    measured = profiled.measured
    if measured is not None and not profiled.has_layer_times and not measured.notes:
        return
    page.line("")
    page.line(f"at {printable(profiled.case.id)}", "bold")
    if measured is None:
        for line in f"{profiled.outcome.value}: {profiled.reason}".splitlines():
            page.item(printable(line), style="red")
        return
    if profiled.has_layer_times:
        page.table(layer_type_time_table(profiled))
    for note in measured.notes:
        write_fact(page, "note", printable(note), "yellow")


def _write_comparison(page: Page, case: CaseComparison, comparison: Comparison) -> None:
    page.line("")
    verdict = describe_verdict(case, comparison.confidence)
    page.sentence(f"at {printable(case.id)} {verdict}", style=f"bold {verdict_style(case)}")
    p50 = case.metric(f"{LATENCY}p50")
    if p50 is not None and metric_title(p50.name) not in verdict:
        page.sentence(describe_metric(p50, comparison.confidence))
    for line in failure_lines(case):
        page.item(line, style="red")
    if has_times(case):
        page.table(type_difference_table(case))
    elif shows_graphs(case):
        page.table(layer_type_change_table(case))


# -- the method


def _write_method(page: Page, sweep: Sweep) -> None:
    if not sweep.has_failed:
        write_fact(page, "how", _method(sweep))
    if sweep.machine is not None:
        page.item(describe_machine_line(sweep.machine))
    engines = [
        (label, describe_engine(side.engine))
        for side, label in zip(sweep.sides, labels_of(sweep), strict=True)
        if side.engine is not None
    ]
    is_same = len({text for _, text in engines}) == 1
    for label, text in engines[:1] if is_same else engines:
        page.item(text if is_same else f"{label}: {text}")
    for note in sweep.notes:
        write_fact(page, "note", printable(note), "yellow")


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
