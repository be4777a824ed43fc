"""The outputs of variants held against a tolerance: faster and wrong is no gain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from pytest_modelperf.comparing.figures import format_figure
from pytest_modelperf.comparing.limits import OUTPUTS, read_share
from pytest_modelperf.comparing.output_changes import judge_outputs
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.records import FAITHFUL, Level, Variant, WhatIf, WhatIfCase


def read_outputs_tolerance(text: str, variants: Iterable[Variant], where: str) -> float:
    """How far outputs may differ, from `outputs=0.01`; UsageError if it would judge nothing."""
    name, _, share = text.partition("=")
    if name.strip() != OUTPUTS or not share:
        raise UsageError(
            f"{where} of a what-if is for outputs alone, such as outputs=0.01; not "
            f"{printable(text)!r}."
        )
    if not any(variant.kind in FAITHFUL for variant in variants):
        raise UsageError(
            f"{where} would judge nothing: outputs of pruned and narrowed variants mean nothing. "
            "Add --quantize or --precision, or leave it out."
        )
    return read_share(share, f"{where}: {OUTPUTS}")


def with_outputs_judged(whatif: WhatIf, allowed: float) -> WhatIf:
    """The what-if with a verdict on the outputs of each variant that should keep them."""
    cases = tuple(
        replace(case, levels=tuple(_judged(level, allowed) for level in case.levels))
        for case in whatif.cases
    )
    return replace(whatif, cases=cases, outputs_tolerance=allowed)


def _judged(level: Level, allowed: float) -> Level:
    is_faithful = level.variant is not None and level.variant.kind in FAITHFUL
    if not is_faithful or level.ms is None:
        return level
    return replace(level, judged_outputs=judge_outputs(level.outputs, allowed))


def judged_lines(case: WhatIfCase) -> Iterator[str]:
    """A line for each level whose outputs differ by too much or could not be compared."""
    for level in case.levels:
        metric = level.judged_outputs
        if metric is None or metric.verdict is Verdict.PASSED:
            continue
        title, allowed = printable(level.title), format_figure(OUTPUTS, metric.allowed)
        if metric.verdict is Verdict.INCONCLUSIVE:
            yield f"{title}: outputs could not be compared, allowed {allowed}"
        elif metric.after is None:
            yield f"{title}: outputs differ in more than their values, allowed {allowed}"
        else:
            differ = format_figure(OUTPUTS, metric.after)
            yield f"{title}: outputs differ by {differ} of their largest value, allowed {allowed}"
