"""Settings of a run that exclude each other, or that have no effect beside another one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec import run_definitions as run
from pytest_modelperf.spec.kinds import read_default
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.spec.run_settings import RunSettings
from pytest_modelperf.spec.setting import PREFIX, Setting

# Each says what the side before runs on.
_ENGINES_BEFORE = (run.BASELINE_PYTHON, run.BASELINE_REQUIREMENT, run.JUDGE_UPGRADES)


def with_one_engine_before(settings: RunSettings) -> RunSettings:
    """The settings with one answer to what the baseline runs on; typed ones win over files.

    UsageError if several remain.
    """
    given = [setting for setting in _ENGINES_BEFORE if getattr(settings, setting.field)]
    typed = [setting for setting in given if setting.key in settings.typed]
    chosen = typed or given
    if len(chosen) > 1:
        both = " and ".join(setting.flag for setting in chosen[:2])
        raise UsageError(
            f"{both} both say what the baseline runs on: leave one of them out, also in "
            f"[tool.{PREFIX}]."
        )
    for setting in given:
        if setting not in chosen:
            settings = replace(settings, **{setting.field: read_default(setting)})
    return settings


def check_together(settings: RunSettings) -> None:
    """UsageError for a setting that has no effect beside another one.

    A typed setting wins over one in a file, which is then ignored.
    """
    if settings.static_only:
        idle = (*_ENGINES_BEFORE, run.GATEWAY, run.TRACE, run.CLUSTER)
        reason = f"with {run.STATIC_ONLY.flag} no model runs"
        _refuse(idle, settings, run.STATIC_ONLY, reason)
    if settings.against is not None:
        reason = f"the history has ratios to baselines, and {run.AGAINST.flag} uses none"
        _refuse((run.HISTORY,), settings, run.AGAINST, reason)
        reason = f"the engine of a baseline is judged, and {run.AGAINST.flag} uses no baseline"
        _refuse((run.JUDGE_UPGRADES,), settings, run.AGAINST, reason)
        if run.RECORDED in settings.baseline_requirements:
            raise UsageError(
                f"{run.BASELINE_REQUIREMENT.flag} {run.RECORDED} needs a baseline, and "
                f"{run.AGAINST.flag} uses none: give the version, as in onnxruntime==1.22.0."
            )
    if settings.update is UpdateMode.ALL:
        reason = f"{run.UPDATE_BASELINE.flag} records every case and compares none"
        remedy = (
            f"Leave one of them out, or record only what is new or improved: "
            f"{run.UPDATE_BASELINE.flag}=new or =improved."
        )
        _refuse((run.AGAINST, *_ENGINES_BEFORE), settings, run.UPDATE_BASELINE, reason, remedy)
    for setting in _ENGINES_BEFORE:
        if settings.uses_cluster and getattr(settings, setting.field):
            raise UsageError(
                f"{setting.flag} needs a Python of this machine, and with {run.CLUSTER.flag} "
                "others measure. Leave one of them out."
            )


def _refuse(
    idle: Sequence[Setting],
    settings: RunSettings,
    other: Setting,
    reason: str,
    remedy: str = "Leave one of them out.",
) -> None:
    """UsageError for the first of these settings that was given, unless only `other` was typed."""
    for setting in idle:
        is_left_out = other.key in settings.typed and setting.key not in settings.typed
        if getattr(settings, setting.field) and not is_left_out:
            raise UsageError(f"{setting.flag} would do nothing: {reason}. {remedy}")
