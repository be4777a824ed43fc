"""A history as data for the scripts of its page, with the texts of its points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    shift_since,
)
from pytest_modelperf.history.repository import is_web_address
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.text.units import signed_percent

if TYPE_CHECKING:
    from pytest_modelperf.profiler.shown.page_latency import Entry

_BARS = "▁▂▃▄▅▆▇█"
# The smallest range of levels that fills the height of a sparkline.
_LEAST_RANGE = 0.02
_COMMIT_LENGTH = 9
_UNKNOWN = "-"


def metric_title(metric: HistoryMetric) -> str:
    return metric.value if metric.is_exact else f"latency {metric.value}"


def case_name(case_id: str, engine: str | None) -> str:
    """Return `b1-c1`, or `b1-c1 openvino` if the engine is not the default."""
    return case_id if engine in {None, DEFAULT_ENGINE} else f"{case_id} {engine}"


def name_case(case: CaseHistory) -> str:
    return f"{model_name(case.model)} {case_name(case.case, case.engine)}"


def name_place(point: HistoryPoint) -> str:
    """Return `1a2b3c4d5 (2026-01-31)`, or the day alone without a commit."""
    day = f"{point.date.date()}"
    return day if point.commit is None else f"{point.commit[:_COMMIT_LENGTH]} ({day})"


def describe_step(step: Step) -> str:
    return (
        f"{format_shift(step.shift)} between {name_place(step.before)} and "
        f"{name_place(step.after)}, whose verdict was {step.after.verdict}"
    )


def describe_beginning(case: CaseHistory) -> str:
    """Explain why the chain begins after the first point of the case."""
    problem = "" if case.unlinked is None else f" ({case.unlinked})"
    return (
        f"the chain begins at {case.first.date.date()}, because its baseline was not measured "
        f"against the one before{problem}; earlier points are left out: {case.earlier_points:,}"
    )


def format_shift(shift: Shift | None) -> str:
    """Return `+5.2 % (+4.1 … +6.3 %)`, without the interval for an exact change."""
    if shift is None:
        return _UNKNOWN
    text = f"{100 * shift.change:+.1f} %"
    if not shift.error:
        return "0 %" if not shift.log_ratio else text
    low, high = shift.bounds(INTERVAL_QUANTILE)
    return f"{text} ({100 * low:+.1f} … {100 * high:+.1f} %)"


def sparkline(levels: Sequence[float]) -> str:
    """Draw the levels as bars of eight heights. A range within 2 % does not fill the height."""
    low, high = min(levels), max(levels)
    whole = max(high - low, _LEAST_RANGE)
    start = (low + high - whole) / 2
    top = len(_BARS) - 1
    return "".join(_BARS[round(top * (level - start) / whole)] for level in levels)


# -- a history as data for the scripts of its page


# The page has logarithms as whole multiples of this, which is 0.001 %.
LOG_UNIT = 1e-5


# Texts in the order in which they first came, and the number of each.
_Index: TypeAlias = dict[str, int]


class _Shared(Struct):
    commits: _Index = field(default_factory=dict)
    verdicts: _Index = field(default_factory=dict)
    baselines: _Index = field(default_factory=dict)
    reasons: _Index = field(default_factory=dict)
    runs: _Index = field(default_factory=dict)


def history_data(
    history: History, commit_url: str | None = None, *, allowed_drift: float | None = None
) -> Entry:
    """Return the data of the page.

    `commit_url` is the address of a commit, with `{commit}` in it. `allowed_drift` is the share by
    which the cost may grow since the first run.
    """
    from pytest_modelperf.profiler.shown.page_data import model_entry, whole_page

    shared = _Shared()
    cases = [_case_entry(case, shared) for case in history.cases]
    # A history filters models, so the pickers of other pages have no model to choose.
    model = model_entry("", sides=[], points=[])
    return {
        **whole_page([model]),
        "history": {
            "metric": metric_title(history.metric),
            "tag": None if history.tag is None else history.tag.name,
            "commit_url": commit_url,
            "allowed_drift": allowed_drift,
            "log_unit": LOG_UNIT,
            **{name: list(index) for name, index in asdict(shared).items()},
            "cases": cases,
        },
    }


def _case_entry(case: CaseHistory, shared: _Shared) -> Entry:
    shifts = [shift_since(case.first, point) for point in case.points]
    places = {id(point): index for index, point in enumerate(case.points)}
    commits = (_number(shared.commits, point.commit) for point in case.points)
    baselines = (_number(shared.baselines, point.baseline) for point in case.points)
    runs = [_number(shared.runs, _page_of_run(point)) for point in case.points]
    return {
        "model": model_name(case.model),
        "machine": case.machine,
        "case": case.case,
        "engine": case.engine or "",
        "earlier": case.earlier_points,
        "count": case.count,
        "since": f"{case.first.date.date()}",
        "verdict": case.points[-1].verdict,
        "change": _shift_entry(case.since_first),
        "since_tag": None if case.since_tag is None else _shift_entry(case.since_tag),
        "steps": [
            {
                "before": places[id(step.before)],
                "after": places[id(step.after)],
                **_shift_entry(step.shift),
            }
            for step in case.steps
        ],
        # Differences of neighbours are small numbers, which need less space when packed.
        "dates": _joined(_differences(int(point.date.timestamp()) for point in case.points)),
        "levels": _joined(_in_units(shift.log_ratio) for shift in shifts),
        "widths": _joined(_in_units(INTERVAL_QUANTILE * shift.error) for shift in shifts),
        "commits": _joined(_differences(commits)),
        "baselines": _joined(_differences(baselines)),
        **({"runs": _joined(_differences(runs))} if any(run >= 0 for run in runs) else {}),
        "verdicts": _joined(_number(shared.verdicts, point.verdict) for point in case.points),
        "reasons": {
            f"{index}": [_number(shared.reasons, reason) for reason in reasons]
            for index, reasons in _new_reasons(case)
        },
    }


def _new_reasons(case: CaseHistory) -> Iterator[tuple[int, tuple[str, ...]]]:
    earlier: tuple[str, ...] = ()
    for index, point in enumerate(case.points):
        if point.reasons != earlier:
            yield index, point.reasons
        earlier = point.reasons


def _page_of_run(point: HistoryPoint) -> str | None:
    return point.run_url if point.run_url and is_web_address(point.run_url) else None


def _shift_entry(shift: Shift) -> Entry:
    """Return the logarithm and text of a change, and the text of its interval, empty if exact."""
    low, high = map(_percent, shift.bounds(INTERVAL_QUANTILE))
    return {
        "log": _in_units(shift.log_ratio),
        "text": _percent(shift.change),
        "range": f"{low.removesuffix(' %')} … {high}" if shift.error else "",
    }


def _percent(change: float) -> str:
    """Return `+3.1 %`, with a minus sign that is as wide as a plus."""
    return signed_percent(change).replace("-", "\N{MINUS SIGN}")


def _number(index: _Index, text: str | None) -> int:
    """Return the number of the text, or -1 without one."""
    return -1 if text is None else index.setdefault(text, len(index))


def _in_units(logarithm: float) -> int:
    return round(logarithm / LOG_UNIT)


def _differences(numbers: Iterable[int]) -> Iterator[int]:
    return (after - before for before, after in pairwise([0, *numbers]))


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
