"""The terminal report of a tuning: what was tried, what is better, and the code to paste."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_modelperf.comparing.case_text import write_fact
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.text.escaping import indented_lines, printable
from pytest_modelperf.text.units import format_bytes, format_confidence, format_ms, percent
from pytest_modelperf.text.words import count_of, list_names
from pytest_modelperf.tuning.pasted import engine_options_table, session_code
from pytest_modelperf.tuning.records import Confirmation, TunedCase, Tuning, TuningLimits
from pytest_modelperf.tuning.tables import (
    cost_table,
    format_interval,
    format_speedup,
    tried_styles,
    tried_table,
)

_NS_PER_MS = 1e6


def render_tuning(tuning: Tuning, style: PageStyle) -> str:
    """The whole report: each case with its table, its answer and its code, and the method."""
    page = style.page()
    page.line(describe_model(tuning.model), "bold")
    if tuning.machine is not None:
        page.item(describe_machine_line(tuning.machine))
    if tuning.engine is not None:
        page.item(describe_engine(tuning.engine))
    for case in tuning.cases:
        if len(tuning.cases) > 1:
            page.line("")
            page.line(printable(case.id), "bold")
        _write_case(page, tuning, case)
    if any(case.rounds for case in tuning.cases):
        page.line("")
        write_fact(page, "how", _method(tuning))
    return page.text()


def _write_case(page: Page, tuning: Tuning, case: TunedCase) -> None:
    if case.failure is not None:
        for line in failure_lines(case):
            page.item(line, style="red")
        return
    page.table(tried_table(case, tuning.least_gain), row_styles=tried_styles(case))
    write_items(page, list(reason_lines(case)))
    page.line("")
    _write_answer(page, tuning, case)
    costs = cost_table(case)
    if costs is not None:
        page.table(costs)
    for title, code in pasted_blocks(tuning, case):
        page.line("")
        page.line(title, "bold cyan")
        for line in code.splitlines():
            page.line(printable(line))
    if case.notes:
        page.line("")
    for note in case.notes:
        write_fact(page, "note", printable(note), "yellow")


def _write_answer(page: Page, tuning: Tuning, case: TunedCase) -> None:
    first, *others = answer_lines(case, tuning.confidence)
    page.sentence(first, style="bold" if case.winner is None else "bold green", indent=4)
    for line in others:
        page.sentence(line)
    for line in limit_lines(case, tuning.limits):
        page.sentence(line, style="yellow")


def failure_lines(case: TunedCase) -> Iterator[str]:
    """Why a case could not be measured."""
    for index, line in enumerate((case.failure or "").splitlines()):
        yield printable(line) if index else f"{printable(case.id)}: {printable(line)}"


def reason_lines(case: TunedCase) -> Iterator[str]:
    """Why sets of options are not recommended, or could not run."""
    for tried in case.tried:
        reason = tried.failure or tried.refusal
        if reason is not None:
            yield from indented_lines(f"{printable(tried.name)}: {reason}")


def answer_lines(case: TunedCase, confidence: float) -> Iterator[str]:
    """The answer: the better options and how sure that is, or that nothing is shown to help."""
    sure = format_confidence(confidence)
    confirmed = case.confirmed
    if confirmed is not None:
        yield (
            f"better: {printable(confirmed.name)}, {_describe_speedup(confirmed)}, in "
            f"{count_of(confirmed.rounds, 'fresh round')}, each side in processes of its own "
            f"({sure} for all that is said here)"
        )
        if case.equals:
            yield f"the same within what can be seen: {list_names(case.equals)}"
    else:
        yield f"nothing is shown to help ({sure})"
    for each in case.confirmations:
        if each is not confirmed:
            yield _describe_doubt(each)
    if confirmed is None and not case.has_faster:
        yield from _gain_lines(case)


def _gain_lines(case: TunedCase) -> Iterator[str]:
    """The gain that could have been seen, as far as the rounds tell."""
    if case.most_gain is not None:
        are_all = all(t.standing is not None and t.refusal is None for t in case.tried)
        which = "above" if are_all else "that ran and may be recommended"
        yield f"no set of options {which} gains more than {percent(case.most_gain)}"
    elif case.detectable is not None:
        yield (
            f"a gain of {percent(case.detectable)} by one of them would have been shown in nine of "
            "ten races; a longer race shows smaller gains"
        )


def _describe_speedup(each: Confirmation) -> str:
    """`x1.31 (1.25 … 1.37)`."""
    if each.speedup is None:
        return "no speedup is known"
    interval = format_interval(each.speedup)
    return f"{format_speedup(each.speedup)}{f' ({interval})' if interval else ''}"


def _describe_doubt(each: Confirmation) -> str:
    name, speedup = printable(each.name), _describe_speedup(each)
    rounds = count_of(each.rounds, "fresh round")
    if each.refusal is not None:
        return f"{name}: {speedup} in {rounds}, but {each.refusal}"
    if each.speedup is not None and not format_interval(each.speedup):
        more = "a larger max-seconds makes time for more"
        return f"{name} looked faster, and {rounds} are too few to confirm it: {speedup}; {more}"
    seen = ""
    if each.detectable is not None and math.isfinite(each.detectable):
        seen = f"; they could show {percent(each.detectable)}"
    return f"{name} looked faster, and {rounds} did not confirm it: {speedup}{seen}"


def limit_lines(case: TunedCase, limits: TuningLimits) -> Iterator[str]:
    """Limits that the baseline itself does not keep."""
    now_ms, taken = case.baseline.p50_ms, case.baseline.memory_bytes
    if limits.latency_ms is not None and now_ms is not None and now_ms > limits.latency_ms:
        shown = format_ms(now_ms * _NS_PER_MS)
        yield f"as it runs now, its median is {shown} ms, above {limits.latency_ms:g} ms"
    if limits.memory_bytes is not None and taken is not None and taken > limits.memory_bytes:
        allowed = format_bytes(limits.memory_bytes)
        yield f"as it runs now, it takes {format_bytes(taken)} of memory, above {allowed}"


def pasted_blocks(tuning: Tuning, case: TunedCase) -> Iterator[tuple[str, str]]:
    """The winner as code and as a table, each with its title."""
    facts = case.winner_engine
    if case.winner is None or facts is None:
        return
    code = session_code(facts, tuning.model.name, case.case.cores)
    if code is not None:
        yield "in Python", code
    yield "in pyproject.toml", engine_options_table(case, facts.name)


def _method(tuning: Tuning) -> str:
    rounds = sum(case.rounds for case in tuning.cases)
    return (
        f"{count_of(rounds, 'round')} in {tuning.seconds:.1f} s: each set of options beside the "
        "model as it runs now, in turn; the best once more in fresh processes. One error level of "
        f"{100 * (1.0 - tuning.confidence):.2g} % is shared by all of them"
    )
