"""The outputs of variants held against a tolerance: faster and wrong is no gain."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pytest_modelperf.comparing.figures import describe_outputs, format_figure
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.output_changes import judge_outputs
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.whatif.records import FAITHFUL, Level, WhatIf, WhatIfCase


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
        text = describe_outputs(metric)
        if metric.verdict is Verdict.INCONCLUSIVE:
            allowed = format_figure(OUTPUTS, metric.allowed)
            text = f"outputs could not be compared, allowed {allowed}"
        yield f"{level.title}: {text}"
