"""Reports on baselines: those of a folder, what changed in them, and the table of an update."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pytest_modelperf.baselines.overview import (
    SHORT,
    BaselineOverview,
    BrokenBaseline,
    Contradiction,
    ListedProgram,
    Review,
    ReviewedBaseline,
    ReviewedProgram,
    ReviewStatus,
)
from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.records import Baseline, BaselineChange, UpdatePlan, Value
from pytest_modelperf.files.names import model_name
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Sheet, Tone
from pytest_modelperf.report.tables import Column, Table, table_of
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_ms,
    signed_percent,
)
from pytest_modelperf.text.words import CUT, count_of, shorten_list

_TONES = {
    ReviewStatus.NEW: Tone.GOOD,
    ReviewStatus.CHANGED: Tone.PLAIN,
    ReviewStatus.REMOVED: Tone.UNSURE,
}
_LIST_COLUMNS = ("folder", "model", "sha256", "case", "macs", "params", "date")
_REVIEW_COLUMNS = ("folder", "status", "case", "machine", "figure", "before", "after", "ratio")
_MOST = 3
_OF_SAME_MODEL = "changed although the model is the same"
_NOT_RECORDED = "this is not what a recording writes"
# A line has a text for each of these figures.
_RATIOS = {"latency_p50_ns": "p50", "macs": "MACs", "params": "params"}
_TOLD = frozenset({
    *_RATIOS, "model", "twin", "twin_trusted", "runtime", "engine version", "plan", "machine",
    "case",
    # These change with every recording.
    "latency_p95_ns", "peak_rss_bytes", "processes",
})  # fmt: skip
_NOTHING = "-"
_TITLES = {
    "macs": "MACs",
    "observed_macs": "MACs in a run",
    "scalar_params": "single-value params",
    "elementwise_ops": "elementwise ops",
    "backward_macs": "backward MACs",
    "effective_macs": "effective MACs",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "peak_activation_bytes": "peak activations",
    "peak_rss_bytes": "peak memory",
    "size_bytes": "file size",
    "latency_p50_ns": "p50 latency",
    "latency_p95_ns": "p95 latency",
    "twin_ratio": "twin / model",
    "twin_trusted": "twin trusted",
    "batch_size": "batch size",
}
# Columns of figures are never cut to fit, so texts in them are kept short.
_LONGEST = 24
_NS = 1e6
_Cell: TypeAlias = "str | int | float | None"
_TIME = "_ns"
_SIZE = "_bytes"


def overview_report(overview: BaselineOverview) -> Report:
    baselines, programs = overview.baselines, overview.programs
    count = len(baselines) + len(programs)
    found = f"{count_of(count, 'baseline')} in" if count else "no baseline in"
    subject = f"{found} {overview.folder}"
    table = table_of(
        "",
        baselines,
        (Column("folder", is_text=True, is_name=True), lambda each: each.name),
        (Column("model", is_text=True, is_name=True, rank=1), lambda each: each.model.model.name),
        (Column("sha256", is_text=True, least=SHORT), _digest),
        (
            Column("cases", is_text=True, rank=1),
            lambda each: _cases([case.id for case in each.model.cases]),
        ),
        (Column("MACs"), lambda each: _counts(each)[0]),
        (Column("params"), lambda each: _counts(each)[1]),
        (Column("recorded", is_text=True, least=len("2026-01-31")), _recorded),
    )
    rows = tuple(
        (
            each.name, each.model.model.name, each.model.model.sha256, case.id, case.static.macs,
            case.static.params, case.provenance.date.isoformat(),
        )
        for each in baselines
        for case in each.model.cases
    )  # fmt: skip
    program_rows = (
        (each.name, None, None, each.program.test, each.program.work.macs, None, _day(each.program))
        for each in programs
    )
    return Report(
        title=subject,
        subject=subject,
        blocks=(
            *([Rows(table)] if baselines else []),
            *([Rows(_program_table(programs))] if programs else []),
            Paragraph(tuple(_broken_lines(overview.broken))),
        ),
        sheet=Sheet(_LIST_COLUMNS, (*rows, *program_rows)),
    )


def _program_table(programs: Sequence[ListedProgram]) -> Table:
    return table_of(
        "programs",
        programs,
        (Column("test", is_text=True, is_name=True), lambda each: each.program.test),
        (Column("commit", is_text=True, least=SHORT), lambda each: _commit(each.program)),
        (Column("inferences"), lambda each: f"{each.program.work.inferences:,}"),
        (Column("p50"), lambda each: f"{format_ms(_NS * each.program.figures.p50_ms)} ms"),
        (
            Column("recorded", is_text=True, least=len("2026-01-31")),
            lambda each: _day(each.program),
        ),
    )


def _commit(program: StoredProgram) -> str:
    return UNKNOWN if program.commit is None else program.commit[:SHORT]


def _day(program: StoredProgram) -> str:
    return program.recorded[: len("2026-01-31")]


def review_report(review: Review) -> Report:
    count = len(review.baselines) + len(review.programs)
    whole = count_of(count + review.unchanged, "baseline")
    subject = f"{count:,} of {whole} in {review.folder} changed since {review.commit}"
    lines = (
        Line(
            word=f"{each.status.value} {each.name}",
            text="; ".join(_parts(each)),
            tone=Tone.BAD if each.contradictions else _TONES[each.status],
        )
        for each in review.baselines
    )
    programs = (
        Line(
            word=f"{each.status.value} {each.test}",
            text="; ".join(_program_parts(each)),
            tone=_TONES[each.status],
        )
        for each in review.programs
    )
    program_rows = (
        (each.name, each.status.value, each.test, None, name, before, after, None)
        for each in review.programs
        for name, before, after in _program_changes(each)
    )
    rows = tuple(
        (each.name, each.status.value, c.case, c.machine, c.name, c.before, c.after, c.ratio)
        for each in review.baselines
        for c in each.changes
    )
    return Report(
        title=subject,
        subject=subject,
        opening=(*lines, *programs, *_broken_lines(review.broken)),
        sheet=Sheet(_REVIEW_COLUMNS, (*rows, *program_rows)),
    )


def _program_changes(program: ReviewedProgram) -> Iterator[tuple[str, _Cell, _Cell]]:
    """Yield the facts of a program that differ: name, before and after."""
    before, after = program.before, program.after
    sides = (
        {} if side is None else {
            "commit": _commit(side),
            "inferences": side.work.inferences,
            "sessions made": side.work.made,
            "MACs": side.work.macs,
            "p50_ms": side.figures.p50_ms,
            "machine": side.machine,
        }
        for side in (before, after)
    )  # fmt: skip
    known, now = sides
    for name in known or now:
        if known.get(name) != now.get(name):
            yield name, known.get(name), now.get(name)


def _program_parts(program: ReviewedProgram) -> Iterator[str]:
    is_changed = program.before is not None and program.after is not None
    for name, before, after in _program_changes(program):
        old, new = (_program_value(name, value) for value in (before, after))
        if is_changed:
            yield f"{_program_word(name)} {old} -> {new}"
        elif name in {"commit", "p50_ms"}:
            yield f"{_program_word(name)} {new if program.before is None else old}"
    if program.before is not None and program.after is not None:
        yield from _seen_parts(program.before, program.after)


def _seen_parts(before: StoredProgram, after: StoredProgram) -> Iterator[str]:
    counts = [(side.work.made, side.work.inferences, side.work.macs) for side in (before, after)]
    if before.work != after.work and counts[0] == counts[1]:
        yield "sessions with other models, options or inputs"
    if before.seen.python != after.seen.python:
        yield f"Python {before.seen.python} -> {after.seen.python}"
    known, now = before.seen.distributions, after.seen.distributions
    versions = [
        _version_change(name, known.get(name), now.get(name)) for name in _differing(known, now)
    ]
    if versions:
        yield shorten_list(versions, _MOST)
    models = ({model.name: model.sha256 for model in side.seen.models} for side in (before, after))
    for names in (_differing(*models), _differing(before.seen.files, after.seen.files)):
        if names:
            yield f"other content of {shorten_list(names, _MOST)}"


def _version_change(name: str, before: str | None, after: str | None) -> str:
    if before is None:
        return f"now imports {name} {after}"
    if after is None:
        return f"no longer imports {name} {before}"
    return f"{name} {before} -> {after}"


def _differing(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _program_word(name: str) -> str:
    return "p50" if name == "p50_ms" else name


def _program_value(name: str, value: _Cell) -> str:
    if value is None:
        return UNKNOWN
    if name == "p50_ms" and isinstance(value, float):
        return f"{format_ms(_NS * value)} ms"
    if name == "MACs" and isinstance(value, int):
        return format_count(value)
    return str(value)


def _broken_lines(broken: Sequence[BrokenBaseline]) -> Iterator[Line]:
    for each in broken:
        at = "" if each.commit is None else f" in {each.commit}"
        yield Line(word=f"broken {each.name}{at}", text=each.problem, tone=Tone.BAD)


def _digest(baseline: Baseline) -> str:
    return (baseline.model.model.sha256 or UNKNOWN)[:SHORT]


def _cases(case_ids: Sequence[str]) -> str:
    return shorten_list(case_ids, _MOST)


def _counts(baseline: Baseline) -> tuple[str, str]:
    """Return the MACs and the params, each as a range if its cases differ."""
    statics = [case.static for case in baseline.model.cases]
    return _spread([s.macs for s in statics]), _spread([s.params for s in statics])


def _spread(values: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(format_count(value) for value in (min(values), max(values))))


def _recorded(baseline: Baseline) -> str:
    return max(case.provenance.date for case in baseline.model.cases).isoformat()


def _parts(each: ReviewedBaseline) -> Iterator[str]:
    whole = each.after or each.before
    if each.status is not ReviewStatus.CHANGED and whole is not None:
        macs, params = _counts(whole)
        yield from (
            f"model {_digest(whole)}",
            _cases([case.id for case in whole.model.cases]),
            f"MACs {macs}",
            f"params {params}",
        )
        return
    changes = each.changes
    yield from _contradiction_parts(each.contradictions)
    yield from _model_parts(each, changes)
    for name, title in _RATIOS.items():
        yield from _ratio_parts(name, title, changes)
    yield from _case_parts(each)
    yield from _twin_parts(each, changes)
    plans = [change.case or "" for change in changes if change.name == "plan"]
    if plans:
        yield f"plan changed ({_cases(plans)})"
    yield from _runtime_parts(changes)
    yield from _machine_parts(changes)
    others = dict.fromkeys(_TITLES.get(c.name, c.name) for c in changes if c.name not in _TOLD)
    if others:
        yield f"also {shorten_list(list(others), _MOST)}"


def _contradiction_parts(found: Sequence[Contradiction]) -> Iterator[str]:
    if any(each.case is None for each in found):
        yield f"size or opsets {_OF_SAME_MODEL}: {_NOT_RECORDED}"
    cases = [each for each in found if each.case is not None]
    for versions in dict.fromkeys(each.versions for each in cases):
        of_these = [each.case or "" for each in cases if each.versions == versions]
        by_others = f"another version recorded it, {', '.join(versions)}"
        yield (
            f"counts {_OF_SAME_MODEL} ({_cases(of_these)}): "
            f"{by_others if versions else _NOT_RECORDED}"
        )


def _model_parts(each: ReviewedBaseline, changes: Sequence[BaselineChange]) -> Iterator[str]:
    if each.is_same_model:
        yield "same model"
    for change in changes:
        if change.name == "model" and change.case is None:
            is_counted = any(other.name in {"macs", "params"} for other in changes)
            yield f"new model {_pair(change)}{'' if is_counted else ', same MACs and params'}"
    if each.cases_of_older_model:
        yield f"{_cases(each.cases_of_older_model)} recorded of an older model"


def _ratio_parts(name: str, title: str, changes: Sequence[BaselineChange]) -> Iterator[str]:
    """Yield a text such as `p50 +12.0 % (b8-c2), +3.0 % (b1-c1)`, the worst first."""
    found = [
        change
        for change in changes
        if change.name == name and None not in {change.before, change.after}
    ]
    if not found:
        return
    shows_machine = len({change.machine for change in found}) > 1
    places: dict[str, list[str]] = {}
    # A change from 0 to more is the worst.
    worst_first = sorted(
        found, key=lambda c: math.inf if c.ratio is None else c.ratio, reverse=True
    )
    for change in worst_first:
        on = f" on {change.machine or ''}" if shows_machine else ""
        places.setdefault(_change_text(change), []).append(f"{change.case or ''}{on}")
    named = [f"{text} ({shorten_list(cases, _MOST)})" for text, cases in places.items()]
    yield f"{title} {shorten_list(named, _MOST)}"


def _case_parts(each: ReviewedBaseline) -> Iterator[str]:
    known, now = (
        [] if side is None else [case.id for case in side.model.cases]
        for side in (each.before, each.after)
    )
    for word, ids in (
        ("added", [case for case in now if case not in known]),
        ("removed", [case for case in known if case not in now]),
    ):
        if ids:
            yield f"{word} {_cases(ids)}"


def _twin_parts(each: ReviewedBaseline, changes: Sequence[BaselineChange]) -> Iterator[str]:
    for change in changes:
        if change.name == "twin":
            text = _change_text(change)
            is_odd = each.is_same_model and text == "changed"
            yield f"twin {_OF_SAME_MODEL if is_odd else text}"
    for value, word in (("no", "no longer trusted"), ("yes", "trusted now")):
        cases = [
            change.case or ""
            for change in changes
            if change.name == "twin_trusted" and change.after == value
        ]
        if cases:
            yield f"twin {word} ({_cases(cases)})"


def _runtime_parts(changes: Sequence[BaselineChange]) -> Iterator[str]:
    found = [
        change
        for change in changes
        if change.name == "runtime" and None not in {change.before, change.after}
    ]
    for pair in dict.fromkeys(map(_pair, found)):
        yield f"runtime {pair}"


def _machine_parts(changes: Sequence[BaselineChange]) -> Iterator[str]:
    for change in changes:
        if change.name != "machine":
            continue
        key = change.machine or ""
        if change.before is None:
            yield f"measured on {key}"
        elif change.after is None:
            yield f"no longer measured on {key}"
        else:
            yield f"processor of {key} {_pair(change)}"


def _pair(change: BaselineChange) -> str:
    return f"{change.before} -> {change.after}"


# -- the table of an update


def plan_table(plan: UpdatePlan) -> Table:
    """Return a table with a row for each figure that changes, titled by the model."""
    machines = {change.machine for change in plan.changes if change.machine is not None}
    columns = (
        Column("case", is_text=True, is_name=True),
        Column("what", is_text=True, is_name=True, least=12),
        Column("before"),
        Column("after"),
        Column("change"),
    )
    rows = []
    shown: str | None = None
    for change in plan.changes:
        case = change.case or "model"
        rows.append(_row(change, case if case != shown else "", shows_machine=len(machines) > 1))
        shown = case
    caption = "\n".join(plan.notes)
    return Table(model_name(plan.name), columns, tuple(rows), None, caption)


def _row(change: BaselineChange, case: str, *, shows_machine: bool) -> tuple[str, ...]:
    what = _TITLES.get(change.name, change.name)
    if shows_machine and change.machine is not None:
        what = f"{what} on {change.machine}"
    before, after = (_value(change.name, value) for value in (change.before, change.after))
    return (case, what, before, after, _change_text(change))


def _value(name: str, value: Value) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        text = value
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + CUT
    if name.endswith(_TIME):
        return f"{format_ms(value)} ms"
    if isinstance(value, float):
        return f"{value:.4f}"
    return format_bytes(value) if name.endswith(_SIZE) else format_count(value)


def _change_text(change: BaselineChange) -> str:
    """Return how a figure changed: `+3.2 %`, `new`, `removed`, or `changed` for a text."""
    if change.before is None and change.after is not None:
        return "new"
    if change.after is None and change.before is not None:
        return "removed"
    return "changed" if change.ratio is None else signed_percent(change.ratio - 1)
