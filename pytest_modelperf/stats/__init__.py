"""The statistics of measured times: estimates, and the tests that verdicts rest on."""

from pytest_modelperf.stats.budgets import judge_percentile, judge_typical
from pytest_modelperf.stats.duet import DuetRule, has_modes, judge_duet, looks_worse
from pytest_modelperf.stats.estimates import (
    describe_spread,
    detectable_change,
    duet_ratio,
    estimate_percentile,
    needed_samples,
    rate_of_rounds,
    ratio_of_rounds,
    rounds_to_detect,
    spread_of_round,
    summarize,
)
from pytest_modelperf.stats.looks import LOOKS, plan_early_looks, plan_looks, share_level
from pytest_modelperf.stats.quantiles import load_quantiles
from pytest_modelperf.stats.stored import FEWEST_PROCESSES, judge_stored

__all__ = [
    "FEWEST_PROCESSES",
    "LOOKS",
    "DuetRule",
    "describe_spread",
    "detectable_change",
    "duet_ratio",
    "estimate_percentile",
    "has_modes",
    "judge_duet",
    "judge_percentile",
    "judge_stored",
    "judge_typical",
    "load_quantiles",
    "looks_worse",
    "needed_samples",
    "plan_early_looks",
    "plan_looks",
    "rate_of_rounds",
    "ratio_of_rounds",
    "rounds_to_detect",
    "share_level",
    "spread_of_round",
    "summarize",
]
