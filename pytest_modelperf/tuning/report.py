"""A tuning as a report: the tried options, the better ones, their costs, and the code to paste."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.facts import (
    ModelRow,
    describe_engine,
    describe_machine_line,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.profiler.shown.names import case_options, engine_options
from pytest_modelperf.profiler.shown.tables.layers import describe_model
from pytest_modelperf.profiler.shown.views import ratio_cells, ratio_series
from pytest_modelperf.report.charts import BarChart
from pytest_modelperf.report.model import (
    Bar,
    Bars,
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
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.units import format_bytes, format_confidence, format_ms, percent
from pytest_modelperf.text.words import count_of, list_names, shell_path, shell_word, shorten_list
from pytest_modelperf.tuning.pasted import engine_options_table, session_code
from pytest_modelperf.tuning.records import (
    REFUSED,
    Confirmation,
    SideCosts,
    Tried,
    TunedCase,
    Tuning,
)

# -- a tuning as a report


# The least width of a name in a table that is cut.
_LEAST_NAME = 24
_NS_PER_MS = 1e6
# The number of cases that a page begins with, besides those that failed.
_MAX_FINDINGS = 3
# The number of sets of options that have a bar. The table has all of them.
_MAX_BARS = 10
_BETTER = "better: "
_NO_GAIN = "no gain shown"
_DASHED = "dashed line: the model as it runs now"
# The next tuning after one without a result gets this factor more seconds.
_LONGER = 4
_SHEET_COLUMNS = ("case", "options", "speedup", "speedup_low", "speedup_high", "rounds", "standing")
_TONES = {
    Standing.FASTER.value: Tone.GOOD,
    Standing.SLOWER.value: Tone.BAD,
    REFUSED: Tone.BAD,
    Standing.OPEN.value: Tone.UNSURE,
}


def tuning_report(tuning: Tuning, made: dt.datetime | None = None) -> Report:
    failed = sum(case.failure is not None for case in tuning.cases)
    machine, engine, limits = tuning.machine, tuning.engine, tuning.limits
    rule = [
        ("confidence", format_confidence(tuning.confidence)),
        ("outputs may differ by", format_share(tuning.outputs_tolerance)),
        ("limit of latency", "" if limits.latency_ms is None else f"{limits.latency_ms:g} ms"),
        ("limit of memory", _format_memory(limits.memory_bytes)),
        ("took", f"{tuning.seconds:.1f} s"),
    ]
    has_run = any(case.rounds for case in tuning.cases)
    return Report(
        title=f"{tuning.model.name}: tuning",
        subject=describe_model(tuning.model),
        headline=f"{failed} of {count_of(len(tuning.cases), 'case')} failed" if failed else "",
        tone=Tone.BAD if failed else Tone.PLAIN,
        opening=(
            *([] if machine is None else [Line(text=describe_machine_line(machine))]),
            *([] if engine is None else [Line(text=describe_engine(engine))]),
        ),
        findings=tuple(_findings(tuning)),
        blocks=(*_blocks_of_cases(tuning), *(_section(tuning, case) for case in tuning.cases)),
        closing=(Line(word="how", text=_method(tuning)),) if has_run else (),
        facts=(
            models_table([ModelRow("", tuning.model, "" if engine is None else engine.label)]),
            run_table([machine], rule, made),
        ),
        sheet=option_sheet(tuning),
    )


def option_sheet(tuning: Tuning) -> Sheet:
    return Sheet(
        _SHEET_COLUMNS,
        tuple(
            (case.id, tried.name, *ratio_cells(tried.speedup), tried.rounds, tried.word)
            for case in tuning.cases
            for tried in case.fastest_first
        ),
    )


def _findings(tuning: Tuning) -> Iterator[Section]:
    """Yield the failed cases, then the best options of each other case and how to use them."""
    failed = [case for case in tuning.cases if case.failure is not None]
    for case in failed:
        yield Section(title=case.id, word=_word(case), sentence=case.failure or "", tone=Tone.BAD)
    for case in [case for case in tuning.cases if case.failure is None][:_MAX_FINDINGS]:
        first, *others = _answer_lines(case, tuning.confidence)
        yield Section(
            title=case.id,
            word=_word(case),
            sentence=first.text.removeprefix(_BETTER),
            tone=_tone(case),
            blocks=(Paragraph(tuple(others)), *_next_steps(tuning, case)),
        )


def _next_steps(tuning: Tuning, case: TunedCase) -> Iterator[Code]:
    """Yield how to use the best options, or a longer tuning if the rounds were too few."""
    if case.winner is not None:
        if case.winner_engine is not None:
            yield Code("in pyproject.toml", engine_options_table(case, case.winner_engine.name))
        words = _run_words(tuning, case, {**case.given, **case.winner.options})
        yield Code("measure with them", f"modelperf profile {words}", is_command=True)
    elif case.most_gain is None or case.has_faster:
        seconds = math.ceil(_LONGER * tuning.seconds)
        words = _run_words(tuning, case, case.given)
        command = f"modelperf tune {words} --max-seconds {seconds}"
        yield Code("tune with more time", command, is_command=True)


def _run_words(tuning: Tuning, case: TunedCase, options: Mapping[str, str]) -> str:
    engine, model = tuning.engine, tuning.model
    given = (f"--engine-option {shell_word(f'{key}={value}')}" for key, value in options.items())
    return " ".join(
        [
            shell_path(model.path or model.name),
            *([] if engine is None else engine_options(engine.name)),
            *given,
            *case_options(case.case),
        ]
    )


def _blocks_of_cases(tuning: Tuning) -> Iterator[ReportBlock]:
    """Yield the gain of each case as bars and as a table. One case has its own."""
    if len(tuning.cases) > 1:
        best = [(case.id, case.confirmed, _answer(case), _tone(case)) for case in tuning.cases]
        yield _ratio_bars(
            (case_id, each.speedup, answer, "", tone)
            for case_id, each, answer, tone in best
            if each is not None and each.speedup is not None
        )
        yield Rows(_cases_table(tuning), tuple(map(_tone, tuning.cases)), on=On.PAGE)


def _speedup_bars(case: TunedCase) -> Bars:
    """Return the speedup of the fastest sets of options, with a mark at no gain."""
    best = None if case.winner is None else case.winner.name
    return _ratio_bars(
        (
            tried.name,
            tried.speedup,
            tried.word,
            "the best" if tried.name == best else "",
            _TONES.get(tried.word, Tone.PLAIN),
        )
        for tried in case.fastest_first[:_MAX_BARS]
        if tried.speedup is not None
    )


def _ratio_bars(rows: Iterable[tuple[str, Ratio, str, str, Tone]]) -> Bars:
    """Return speedups on one scale: each with its title, ratio, word, note and tone."""
    ran = tuple(rows)
    whole = max((max(ratio.value, ratio.high or 0.0, 1.0) for _, ratio, *_ in ran), default=1.0)
    return Bars(
        bars=tuple(
            Bar(
                title=title,
                word=word,
                note=note,
                texts=("", _format_speedup(ratio)),
                lengths=(None, ratio.value / whole),
                interval=_interval_of(ratio, whole),
                allowed=1.0 / whole,
                tone=tone,
            )
            for title, ratio, word, note, tone in ran
        )
    )


def _interval_of(ratio: Ratio, whole: float) -> tuple[float, float] | None:
    if ratio.low is None or ratio.high is None:
        return None
    return ratio.low / whole, ratio.high / whole


def _tone(case: TunedCase) -> Tone:
    if case.failure is not None:
        return Tone.BAD
    return Tone.PLAIN if case.winner is None else Tone.GOOD


def _cases_table(tuning: Tuning) -> Table:
    table = table_of(
        "",
        tuning.cases,
        (Column("case", is_text=True), lambda case: case.id),
        (Column("", is_text=True, is_verdict=True), _word),
        (Column("better", is_name=True), lambda c: "" if c.winner is None else c.winner.name),
        (Column("speedup"), lambda case: _format_speedup(_speedup(case))),
        (Column("interval"), lambda case: _format_interval(_speedup(case))),
        (Column("p50 ms now"), lambda case: _format_ms(case.baseline.p50_ms)),
        (Column("p50 ms best"), lambda case: _format_ms((case.winner_costs or SideCosts()).p50_ms)),
        (Column("tried"), lambda case: str(len(case.tried))),
        (Column("rounds"), lambda case: str(case.rounds)),
        caption=_DASHED,
    )
    return drop_blank_columns(table)


def _answer(case: TunedCase) -> str:
    if case.failure is not None:
        return "failed"
    return "nothing is shown to help" if case.winner is None else case.winner.name


def _word(case: TunedCase) -> str:
    if case.failure is not None:
        return "failed"
    return _NO_GAIN if case.winner is None else Standing.FASTER.value


def _speedup(case: TunedCase) -> Ratio | None:
    return None if case.confirmed is None else case.confirmed.speedup


def _method(tuning: Tuning) -> str:
    rounds = sum(case.rounds for case in tuning.cases)
    return (
        f"{count_of(rounds, 'round')} in {tuning.seconds:.1f} s: each set of options in turn with "
        "the model as it runs now; the best once more in fresh processes. One error level of "
        f"{100 * (1.0 - tuning.confidence):.2g} % is shared by all of them"
    )


# -- one case


def _section(tuning: Tuning, case: TunedCase) -> Section:
    return Section(
        title=case.id,
        is_titled=len(tuning.cases) > 1,
        sentence="what was tried, and what it costs",
        tone=_tone(case),
        blocks=tuple(_blocks(tuning, case)),
    )


def _blocks(tuning: Tuning, case: TunedCase) -> Iterator[ReportBlock]:
    if case.failure is not None:
        yield Failure(describe_failure(case))
        return
    yield _speedup_bars(case)
    tones = tuple(_TONES.get(tried.word, Tone.PLAIN) for tried in case.fastest_first)
    yield Rows(_tried_table(case, tuning.least_gain), tones, on=On.TEXT)
    yield Rows(_tried_table(case, tuning.least_gain, has_reasons=True), tones, on=On.PAGE)
    yield Paragraph(lines_of(refusals_of(case)), on=On.TEXT)
    yield Paragraph(tuple(_answer_lines(case, tuning.confidence)), on=On.TEXT)
    yield Paragraph(tuple(_limit_lines(tuning, case)))
    costs = _cost_table(case)
    if costs is not None:
        yield Rows(costs)
    yield from _pasted(tuning, case)
    yield Paragraph(lines_of(case.notes, "note", Tone.UNSURE))


def describe_failure(case: TunedCase) -> str:
    """Return why a case could not be measured."""
    return f"{case.id}: {case.failure}"


def refusals_of(case: TunedCase) -> list[str]:
    """Return why sets of options are not recommended, or could not run."""
    return [f"{tried.name}: {_reason(tried)}" for tried in case.tried if _reason(tried)]


def _tried_table(case: TunedCase, least_gain: float, *, has_reasons: bool = False) -> Table:
    gain = f"{100 * least_gain:g} %"
    caption = (
        f"faster, slower: shown, by more than {gain}; no gain: shown to gain less than {gain}; "
        "open: not decided"
    )
    if has_reasons:
        bars = f"bars: the {_MAX_BARS} fastest\n" if len(case.tried) > _MAX_BARS else ""
        caption = f"{bars}{_DASHED}\n{caption}"
    table = table_of(
        "options tried",
        case.fastest_first,
        (Column("options", is_name=True, least=_LEAST_NAME), lambda tried: tried.name),
        (Column("speedup", has_bars=True), lambda tried: _format_speedup(tried.speedup)),
        (Column("interval"), lambda tried: _format_interval(tried.speedup)),
        (Column("rounds", rank=1), lambda tried: str(tried.rounds or "")),
        (Column("", is_text=True, is_verdict=has_reasons), lambda tried: tried.word),
        *([(Column("reason", is_name=True), _reason)] if has_reasons else []),
        caption=caption,
    )
    return drop_blank_columns(table)


def _reason(tried: Tried) -> str:
    return tried.failure or tried.refusal or ""


def _answer_lines(case: TunedCase, confidence: float) -> Iterator[Line]:
    """Yield the better options and their confidence, or that nothing is shown to help."""
    sure = format_confidence(confidence)
    confirmed = case.confirmed
    if confirmed is not None:
        text = (
            f"{_BETTER}{confirmed.name}, {_describe_speedup(confirmed)}, in "
            f"{count_of(confirmed.rounds, 'fresh round')}, each side in processes of its own "
            f"({sure} for all that is said here)"
        )
        yield Line(text=text, tone=Tone.GOOD, is_bold=True)
        if case.equals:
            yield Line(text=f"the same within what can be seen: {list_names(case.equals)}")
    else:
        yield Line(text=f"nothing is shown to help ({sure})", is_bold=True)
    for each in case.confirmations:
        if each is not confirmed:
            yield Line(text=_describe_doubt(each))
    gain = _describe_gain(case)
    if confirmed is None and not case.has_faster and gain:
        yield Line(text=gain)


def _describe_gain(case: TunedCase) -> str:
    if case.most_gain is not None:
        are_all = all(t.standing is not None and t.refusal is None for t in case.tried)
        which = "above" if are_all else "that ran and may be recommended"
        return f"no set of options {which} gains more than {percent(case.most_gain)}"
    if case.detectable is not None:
        return (
            f"a gain of {percent(case.detectable)} by one of them would have been shown in nine of "
            "ten races; a longer race shows smaller gains"
        )
    return ""


def _describe_speedup(each: Confirmation) -> str:
    """Return `x1.31 (1.25 … 1.37)`."""
    if each.speedup is None:
        return "no speedup is known"
    interval = _format_interval(each.speedup)
    return f"{_format_speedup(each.speedup)}{f' ({interval})' if interval else ''}"


def _describe_doubt(each: Confirmation) -> str:
    name, speedup = each.name, _describe_speedup(each)
    rounds = count_of(each.rounds, "fresh round")
    if each.refusal is not None:
        return f"{name}: {speedup} in {rounds}, but {each.refusal}"
    if each.speedup is not None and not _format_interval(each.speedup):
        more = "a larger max-seconds makes time for more"
        return f"{name} looked faster, and {rounds} are too few to confirm it: {speedup}; {more}"
    seen = ""
    if each.detectable is not None and math.isfinite(each.detectable):
        seen = f"; they could show {percent(each.detectable)}"
    return f"{name} looked faster, and {rounds} did not confirm it: {speedup}{seen}"


def _limit_lines(tuning: Tuning, case: TunedCase) -> Iterator[Line]:
    limits = tuning.limits
    now_ms, taken = case.baseline.p50_ms, case.baseline.memory_bytes
    if limits.latency_ms is not None and now_ms is not None and now_ms > limits.latency_ms:
        text = f"its median is {_format_ms(now_ms)} ms, above {limits.latency_ms:g} ms"
        yield Line(text=f"as it runs now, {text}", tone=Tone.UNSURE)
    if limits.memory_bytes is not None and taken is not None and taken > limits.memory_bytes:
        allowed = format_bytes(limits.memory_bytes)
        text = f"it takes {format_bytes(taken)} of memory, above {allowed}"
        yield Line(text=f"as it runs now, {text}", tone=Tone.UNSURE)


def _cost_table(case: TunedCase) -> Table | None:
    sides, names = [case.baseline], ["now"]
    if case.winner_costs is not None:
        sides, names = [*sides, case.winner_costs], [*names, "best"]
    figures = (
        ("p50 ms", *(_format_ms(costs.p50_ms) for costs in sides)),
        ("load ms", *(_format_ms(costs.load_ms) for costs in sides)),
        ("memory", *(_format_memory(costs.memory_bytes) for costs in sides)),
    )
    rows = tuple(row for row in figures if any(row[1:]))
    columns = (Column("", is_text=True), *map(Column, names))
    return Table("", columns, rows) if rows else None


def _pasted(tuning: Tuning, case: TunedCase) -> Iterator[Code]:
    facts = case.winner_engine
    if case.winner is None or facts is None:
        return
    code = session_code(facts, tuning.model.name, case.case.cores)
    if code is not None:
        yield Code("in Python", code)
    yield Code("in pyproject.toml", engine_options_table(case, facts.name))


# -- figures


def _format_speedup(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"x{ratio.value:.2f}" if ratio.value < 99.5 else f"x{ratio.value:.0f}"


def _format_interval(ratio: Ratio | None) -> str:
    interval = None if ratio is None else ratio.interval
    return "" if interval is None else "{:.2f} … {:.2f}".format(*interval)


def _format_memory(size: int | None) -> str:
    return "" if size is None else format_bytes(size)


def _format_ms(ms: float | None) -> str:
    return "" if ms is None else format_ms(ms * _NS_PER_MS)


# -- the texts about a tuning and its figures


_MOST_NAMED = 5

OUTPUTS_VARY = (
    "the outputs of the model differ from process to process, so they are not compared: give "
    "inputs with --input-file, or compare them yourself"
)
_PRECISION = (
    "{} may change the precision: the outputs were compared on these inputs alone, and accuracy "
    "was not measured"
)
# The warnings that belong to a recommended option.
_WARNINGS: Mapping[str, str] = {
    **{
        key: _PRECISION.format(key)
        for key in ("INFERENCE_PRECISION_HINT", "provider.load_config", "provider.trt_fp16_enable")
    },
    "session.set_denormal_as_zero": (
        "session.set_denormal_as_zero makes numbers zero that are too small for full precision. "
        "It has to be in the options of the first session of a program"
    ),
    "CPU_DENORMALS_OPTIMIZATION": (
        "CPU_DENORMALS_OPTIMIZATION makes numbers zero that are too small for full precision"
    ),
    "session.intra_op.allow_spinning": (
        "inferences ran back to back: in a program that waits between them, spinning threads also "
        "take processor time"
    ),
}


def find_warnings(options: Mapping[str, str]) -> Iterator[str]:
    return (text for key, text in _WARNINGS.items() if key in options)


def describe_uncompared(name: str, reason: str) -> str:
    return f"it is unknown whether {name} changes the outputs: {reason}. Compare them yourself"


def describe_latency_refusal(limit_ms: float) -> str:
    return f"its median latency is not shown to be within {limit_ms:g} ms"


def describe_memory_refusal(taken: int | None, limit: int) -> str:
    if taken is None:
        return "it is not known how much memory it takes"
    return f"it takes {format_bytes(taken)} of memory, allowed {format_bytes(limit)}"


def describe_unseen(names: Sequence[str], wording: Wording) -> Iterator[str]:
    if names:
        few = shorten_list(names, _MOST_NAMED)
        yield f"there was no time for {few}: {wording.names['max_seconds']} makes more"


def tuning_views(tuning: Tuning, report: Callable[[], Report]) -> Views:
    return Views(
        report=report,
        sheets={"options": lambda: option_sheet(tuning)},
        charts={"options": lambda: _chart(tuning)},
    )


def _chart(tuning: Tuning) -> BarChart:
    found = [(case, tried) for case in tuning.cases for tried in case.fastest_first]
    is_one = len(tuning.cases) == 1
    names = tuple(each.name if is_one else f"{case.id} {each.name}" for case, each in found)
    bars = ratio_series("speedup", [tried.speedup for _, tried in found])
    return BarChart(f"options tried for {tuning.model.name}", "times as fast", names, (bars,))
