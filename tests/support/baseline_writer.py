"""Baselines made by hand, and processes that write them: some are killed at it, some take turns.

`python -m tests.support.baseline_writer kill FOLDER` prints what became of every attempt, one
line of JSON each; `... update FOLDER WORKER CASES` stores that many cases one by one.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_removal, plan_update
from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineRecording,
    MachineBaseline,
    StoredCase,
    StoredLatency,
    StoredProcess,
    StoredStatic,
    UpdatePlan,
)
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.records import StoredInputs
from tests.support.facts import make_engine, make_fidelity, make_kind, make_model, make_provenance
from tests.support.known import known

NAME = "models--encoder"
DAY = dt.date(2026, 1, 31)
MACHINE = MachineFacts(
    cpu="AMD EPYC 9R14",
    microarchitecture="zen4",
    instruction_sets=("avx2", "fma"),
    usable_cores=2,
    quota_cores=1.5,
    caches={"L1d": 32768},
    turbo=True,
    system="Linux",
    architecture="x86_64",
    packages={"onnxruntime": "1.31.1"},
)
ENGINE = make_engine("onnxruntime", "1.31.1", {"threads": "1"}, ("CPUExecutionProvider",))
# System calls that change a file or a folder, and the one that takes the lock.
SYSTEM_CALLS = (
    *("open", "write", "fsync", "close", "replace", "rename", "unlink", "mkdir", "rmdir"),
    "flock",
)


def make_recording(
    case_ids: Sequence[str] = ("b1-c1",),
    version: int = 1,
    *,
    twin: bytes | None = b"twin",
    key: str = MACHINE.key,
) -> BaselineRecording:
    """A recording of such cases; every version of the model is another one."""
    digest = hashlib.sha256(str(version).encode()).hexdigest()
    return BaselineRecording(
        name=NAME,
        model=make_model("encoder.onnx", None, digest, 1000 + version, {"ai.onnx": 17}, "torch"),
        cases=tuple(make_case(case_id, digest, version) for case_id in case_ids),
        twin=None if twin is None else twin + digest.encode(),
        machine=MachineBaseline(
            key=key,
            machine=MACHINE,
            cases={case_id: make_latency(digest, version) for case_id in case_ids},
        ),
    )


def make_case(case_id: str, digest: str | None, version: int) -> StoredCase:
    batch_size, cores = (int(part[1:]) for part in case_id.split("-")[:2])
    convolution = replace(
        make_kind("Conv", 5),
        macs=900 * version,
        elementwise_ops=10,
        backward_macs=1800,
        params=70,
        weight_bytes=280,
        output_bytes=400,
    )
    unknown = dict.fromkeys(("macs", "elementwise_ops", "backward_macs", "output_bytes"))
    blend = replace(make_kind("Blend", 1), domain="my.ops", **unknown)
    return StoredCase(
        id=case_id,
        batch_size=batch_size,
        cores=cores,
        dims={"seq": 64},
        generation=None,
        engine="onnxruntime",
        options=None,
        inputs=StoredInputs(specs={}, sha256=None),
        model_sha256=digest,
        observed=None,
        plan=None,
        structure="0123456789abcdef" * 2,
        static=StoredStatic(
            macs=900 * version,
            elementwise_ops=10,
            backward_macs=1800,
            effective_macs=None,
            params=70,
            scalar_params=None,
            weight_bytes=280,
            activation_bytes=400,
            knows_activations=False,
            peak_activation_bytes=None,
            layer_types={"Conv": convolution, "my.ops::Blend": blend},
            uncounted_ops={"my.ops::Blend": 1},
            notes=("a note",),
        ),
        fidelity=make_fidelity(0.998, 0.995, 1.002),
        provenance=make_provenance(date=DAY, packages={"onnx": "1.23.2"}, machine=MACHINE.key),
    )


def make_latency(digest: str | None, version: int) -> StoredLatency:
    def process(shift: int) -> StoredProcess:
        times_ns = tuple(1_000_000 * version + shift + 1000 * step for step in range(5))
        return StoredProcess(
            date=DAY,
            load_ns=(21_300_000,) * 2,
            first_ns=(9_400_000,) * 2,
            samples=(40,) * 2,
            times_ns=(times_ns,) * 2,
            peak_rss_bytes=113 << 20,
            layer_type_ns={"Conv": 900_000, "layout": 100},
        )

    return StoredLatency(engine=ENGINE, model_sha256=digest, processes=(process(0), process(100)))


@dataclass(frozen=True)
class Scenario:
    """A recording that is stored, and the one that is then planned."""

    name: str
    stored: BaselineRecording | None
    plan: Callable[[Baseline | None], UpdatePlan]


def _removal(case_ids: Sequence[str] | None) -> Callable[[Baseline | None], UpdatePlan]:
    def plan(stored: Baseline | None) -> UpdatePlan:
        return plan_removal(known(stored), case_ids)

    return plan


_STORED = make_recording(("b1-c1", "b8-c2"))
SCENARIOS = (
    Scenario("first", None, lambda stored: plan_update(stored, make_recording())),
    Scenario("new model", _STORED, lambda stored: plan_update(stored, make_recording(version=2))),
    Scenario(
        "twin dropped",
        _STORED,
        lambda stored: plan_update(
            stored, make_recording(("b1-c1", "b8-c2"), version=2, twin=None)
        ),
    ),
    Scenario(
        "another machine",
        _STORED,
        lambda stored: plan_update(stored, make_recording(key="linux-arm64-graviton3-4c")),
    ),
    Scenario("case removed", _STORED, _removal(("b8-c2",))),
    Scenario("model removed", _STORED, _removal(None)),
)


@dataclass
class Executioner:
    """Counts system calls, and kills its process at one of them: before it, or halfway."""

    at: int
    halfway: bool
    made: list[str] = field(default_factory=list)

    def install(self) -> None:
        for name in SYSTEM_CALLS:
            module: Any = fcntl if name == "flock" else os
            watched = self._watch(name, getattr(module, name))
            setattr(module, name, watched)
            # Python 3.10 has a copy of these functions.
            accessor = getattr(pathlib, "_NormalAccessor", None)
            if hasattr(accessor, name):
                setattr(accessor, name, staticmethod(watched))

    def _watch(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # of any function
            self.made.append(name)
            if len(self.made) - 1 == self.at:
                if self.halfway:
                    handle, content = arguments
                    call(handle, content[: len(content) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return watched


def kill_everywhere(folder: Path) -> None:
    """Kill a writer at each system call of each scenario, and print what is left each time."""
    for number, scenario in enumerate(SCENARIOS):
        before = folder / f"{number}-before"
        before.mkdir(parents=True)
        if scenario.stored is not None:
            BaselineStore(before).apply(plan_update(None, scenario.stored))
        after = folder / f"{number}-after"
        calls = _attempt(scenario, before, after, at=-1)
        attempts = [(at, False) for at in range(len(calls))]
        attempts += [(at, True) for at, call in enumerate(calls) if call == "write"]
        for at, halfway in attempts:
            root = folder / f"{number}-{at}-{halfway}"
            reached = _attempt(scenario, before, root, at=at, halfway=halfway)
            outcome = {
                "scenario": scenario.name,
                "call": f"{at} {calls[at]}{' halfway' if halfway else ''}",
                "was_killed": reached == [],
                "problem": problem_of(scenario, before, root, after),
            }
            sys.stdout.write(json.dumps(outcome) + "\n")
            shutil.rmtree(root)


def _attempt(
    scenario: Scenario, before: Path, root: Path, *, at: int, halfway: bool = False
) -> list[str]:
    """Return the system calls of a process that wrote the plan; none if it was killed."""
    shutil.copytree(before, root)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        executioner = Executioner(at, halfway)
        store = BaselineStore(root)
        plan = scenario.plan(store.read(NAME))
        write = os.write
        executioner.install()
        store.apply(plan)
        write(writer, json.dumps(executioner.made).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    os.waitpid(child, 0)
    made: list[str] = json.loads(text or "[]")
    return made


def problem_of(scenario: Scenario, before: Path, root: Path, after: Path) -> str:
    """Return what is wrong with the files of a killed writer: each must be an old or a new one."""
    old, new, left = (BaselineStore(path).read(NAME) for path in (before, after, root))
    if (left and (left.model, left.twin)) not in (
        old and (old.model, old.twin),
        new and (new.model, new.twin),
    ):
        return "model.json and its twin are neither old nor new"
    for path in (root / NAME).glob("*.json"):
        versions = [folder / NAME / path.name for folder in (before, after)]
        if path.read_bytes() not in [v.read_bytes() for v in versions if v.exists()]:
            return f"{path.name} is neither old nor new"
    store = BaselineStore(root)
    try:
        plan = scenario.plan(left)
    except AssertionError:
        # It is removed already; what the writer left is for the next one to take away.
        plan = replace(scenario.plan(old), before=None, after=None)
    store.apply(plan)
    if store.read(NAME) != new:
        return "doing it again does not complete it"
    if _tree(root) != _tree(after):
        return f"files are left: {_tree(root)}"
    return ""


def _tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def update_one_by_one(root: Path, worker: int, cases: int) -> None:
    """Store cases of one worker, each by an update of its own."""
    store = BaselineStore(root)
    for batch_size in range(1, cases + 1):
        recording = make_recording((f"b{batch_size}-c{worker}",))
        store.apply(plan_update(store.read(NAME), recording))


def main(mode: str, folder: str, *numbers: str) -> None:
    if mode == "kill":
        # The kernel keeps what a killed process wrote; only a power cut could lose it.
        os.fsync = lambda fd: None  # noqa: ARG005  # its name is part of its type
        kill_everywhere(Path(folder))
    else:
        worker, cases = map(int, numbers)
        update_one_by_one(Path(folder), worker, cases)


if __name__ == "__main__":
    main(*sys.argv[1:])
