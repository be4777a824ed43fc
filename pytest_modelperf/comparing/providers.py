"""Compare how many layers run on each execution provider."""

from __future__ import annotations

from collections import Counter

from pytest_modelperf.comparing.figures import LAYERS_ON
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.records import CaseProfile


def provider_metrics(before: CaseProfile, after: CaseProfile) -> tuple[Metric, ...]:
    """Return the layers on each provider, if an engine has several and reports which ran.

    A provider that cannot run a layer leaves it to the last one. So one layer more on the last is a
    regression, whatever the latency shows. The numbers of the others are only shown.
    """
    old, new = _layers_by_provider(before), _layers_by_provider(after)
    listed = _several(before, after)
    if listed is None or not old or not new:
        return ()
    last = listed[-1]
    return tuple(
        Metric(
            f"{LAYERS_ON}{provider}",
            old[provider],
            new[provider],
            _judge(old[provider], new[provider]) if provider == last else Verdict.PASSED,
            gated=provider == last,
            allowed=0.0 if provider == last else None,
        )
        for provider in sorted({*old, *new}, key=lambda name: (name != last, name))
    )


def uncounted_providers(before: CaseProfile, after: CaseProfile) -> tuple[str, ...]:
    """Return a note if an engine has several providers but does not report those of its kernels."""
    if _several(before, after) is None or provider_metrics(before, after):
        return ()
    return (
        "layers on each provider are not judged: the engine reported no provider of its kernels",
    )


def _several(before: CaseProfile, after: CaseProfile) -> tuple[str, ...] | None:
    """Return the providers of the side that has more of them, or None if both have one."""
    listed = [side.measured.engine.providers for side in (before, after) if side.measured]
    longest = max(listed, key=len, default=())
    return longest if len(longest) > 1 else None


def _layers_by_provider(profile: CaseProfile) -> Counter[str]:
    """Return how many layers ran on each provider. Each layer of a shared kernel counts."""
    counts: Counter[str] = Counter()
    times = () if profile.measured is None else profile.measured.layer_times
    for time in times or ():
        if time.layer is not None and time.provider is not None:
            counts[time.provider] += 1 + len(time.fused)
    return counts


def _judge(before: int, after: int) -> Verdict:
    if before == after:
        return Verdict.PASSED
    return Verdict.REGRESSED if after > before else Verdict.IMPROVED
