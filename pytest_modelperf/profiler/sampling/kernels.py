"""Measure the times of kernels and the shapes of tensors, in profiled sessions of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.measurements import KernelRun
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload

# The most runs of the profiled sessions of a fast model.
MAX_LAYER_RUNS = 100
# Calls of kernels that one profile may hold: ONNX Runtime stops writing at a million events.
MAX_KERNEL_CALLS = 200_000
# The share of a case's time that the runs of its profiled sessions may take, and the number of
# sessions that share it. Sessions of one model differ by a percent or so.
_LAYER_SHARE = 0.25
_LAYER_SESSIONS = 5
# A second session is open next to the first if this many times its weights fit into memory.
_SESSION_FACTOR = 3
# A profile of plans is short, because it only divides time that was measured otherwise.
_NS_PER_S = 1_000_000_000
_PLAN_PROFILE_NS = _NS_PER_S // 2
_SECOND = " beside"


class Profiled(Struct, frozen=True):
    """A model whose kernels are to be timed, its size, and a copy with unique names if needed."""

    rig: Rig
    named: Path | None
    nodes: int
    weight_bytes: int


def run_plan_kernels(plans: Mapping[str, str], rig: Rig, kernels: int) -> list[KernelRun] | None:
    """Return the times of the kernels of plans, in turn. `plans` maps feeds to the plans' paths."""
    answers = rig.ask(
        "layers",
        "in a profiled session of its plan",
        limit_s=rig.setup.limit_s + rig.setup.policy.max_seconds,
        models=[
            {"model": path, "folder": None, "feed": feed, "beside": None}
            for feed, path in plans.items()
        ],
        warmup_ns=_PLAN_PROFILE_NS,
        limits=[
            (rig.setup.policy.min_slow_layer_runs, None),
            (min(MAX_LAYER_RUNS, MAX_KERNEL_CALLS // max(1, kernels)), _PLAN_PROFILE_NS),
        ],
        are_plans=True,
    )
    return None if answers is None else [kernel_run_of(answer) for answer in answers]


def run_kernels(models: Sequence[Profiled]) -> list[KernelRun] | None:
    """Return the times of the kernels of models in one worker, in turn, if the engine has them."""
    rig = models[0].rig
    policy = rig.setup.policy
    short_ns, whole_ns = (
        int(share * policy.max_seconds * _NS_PER_S) for share in (_LAYER_SHARE, 1.0)
    )
    nodes = sum(model.nodes for model in models)
    has_room = _has_room(rig, sum(model.weight_bytes for model in models))
    others = {model.rig.side: f"{model.rig.side}{_SECOND}" for model in models if has_room}
    for model in models:
        if model.rig.side in others:
            model.rig.open_as(others[model.rig.side], model.rig.still_feed)
    answers = rig.ask(
        "layers",
        "in its profiled session",
        limit_s=rig.setup.limit_s + policy.max_seconds,
        models=[_profiled(model, others.get(model.rig.side)) for model in models],
        warmup_ns=short_ns,
        limits=[
            (policy.min_slow_layer_runs, None),
            (policy.min_layer_runs, whole_ns),
            (min(MAX_LAYER_RUNS, MAX_KERNEL_CALLS // max(1, nodes)), short_ns),
        ],
        sessions=_LAYER_SESSIONS,
    )
    # They stay open after an error or interrupt: a worker that ended or is busy does not answer.
    for name in others.values():
        rig.close_as(name)
    return None if answers is None else [kernel_run_of(answer) for answer in answers]


def _profiled(model: Profiled, other: str | None) -> dict[str, str | None]:
    workload = _with_unique_names(model.rig, model.named)
    return {
        "model": str(workload.model),
        "folder": workload.folder,
        "feed": model.rig.still_feed,
        "beside": other,
    }


def read_kernels(rig: Rig) -> KernelRun | None:
    """Return the kernels that one inference shows, for engines that save no plan."""
    answer = rig.ask(
        "kernels",
        "as its kernels were read",
        model=str(rig.workload.model),
        folder=rig.workload.folder,
        feed=rig.still_feed,
    )
    if answer is None:
        return None
    return kernel_run_of({**answer, "run_ns": (), "sessions": (), "plain_ns": ()})


def observe_shapes(rig: Rig, named: Path | None) -> Sequence[Mapping[str, Any]] | None:
    """Return the shapes of every node in one unoptimized run, or None if the engine has none."""
    workload = _with_unique_names(rig, named)
    return ask_for_shapes(rig, workload.model, workload.folder, "in a run to see its shapes")


def ask_for_shapes(
    rig: Rig, model: object, folder: str | None, step: str
) -> Sequence[Mapping[str, Any]] | None:
    """Return the shapes of every node in an unoptimized run of a file that the worker has."""
    options, feed = dict(rig.setup.options), rig.still_feed
    found: list[dict[str, Any]] | None = rig.worker.ask(
        "shapes", step, model=model, folder=folder, options=options, feed=feed
    )
    return found


def _with_unique_names(rig: Rig, named: Path | None) -> Workload:
    """Return the workload, with the copy that has unique names if there is one."""
    workload = rig.workload
    if named is None:
        return workload
    copy = rig.worker.send_file(named, named.name)
    return replace(
        workload, model=copy, folder=workload.folder or str(Path(str(workload.model)).parent)
    )


def _has_room(rig: Rig, weight_bytes: int) -> bool:
    free = rig.worker.ask("memory", "as its memory was asked for")["available_bytes"]
    return free is None or weight_bytes * _SESSION_FACTOR < free


def kernel_run_of(answer: Mapping[str, Any]) -> KernelRun:
    return msgspec.convert({**answer, "engine_peak_bytes": answer["peak_bytes"]}, KernelRun)
