"""Count the MACs of a program's models, and find why a changed one takes longer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.by_running import compare_models
from pytest_modelperf.comparing.changes import TimeChange
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import MEDIAN, CaseComparison, How
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import BITS
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.sides import WatchedWork
from pytest_modelperf.programs.work import SessionPair
from pytest_modelperf.text.escaping import printable

MODEL_SECONDS = 10.0
_NS_PER_MS = 1e6
_MOST_REASONS = 4
_SCALAR = "scalar"
_INPUT = re.compile(rf"^(?P<name>.*): (?P<shape>\d+(x\d+)*|{_SCALAR}) (?P<dtype>\w+)$")


class MacsCounter:
    """A counter of the MACs of a watched call's inferences, with notes on what is not counted."""

    def __init__(self, watched: WatchedWork) -> None:
        self._models = {
            session.sha256: session.model
            for session in watched.work.sessions
            if session.sha256 is not None
        }
        self._files = watched.models
        self._numbers = watched.numbers
        self._failures: dict[str, str] = {}

    def __call__(self, sha256: str, inputs: Sequence[str]) -> int | None:
        """Return the MACs of one inference, or None if they cannot be counted."""
        model = self._models.get(sha256, "")
        path = self._files.get(model)
        if path is None:
            return None
        try:
            specs = _specs(inputs, path, self._numbers.get(model, {}))
            if specs is None:
                return None
            (case,) = profile_model(path, ProfileRequest(inputs=specs)).cases
        except ModelPerfError as error:
            self._failures.setdefault(model, error.message)
            return None
        return case.static.macs

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"the MACs of {printable(model)} cannot be counted: {reason}"
            for model, reason in self._failures.items()
        )


class ModelDuet(Struct, frozen=True):
    """Reasons by both versions of a model, and how much longer a call takes, if that is known."""

    reasons: tuple[str, ...]
    change: TimeChange | None = None


def compare_versions(
    asked: ProgramCheck, pair: SessionPair, seen: tuple[WatchedWork, WatchedWork], gate: Gate
) -> ModelDuet | None:
    """Compare both versions of a changed model by a duet, or return None if one is unknown."""
    old, new = pair.before, pair.after
    if old is None or new is None or not new.inferences:
        return None
    files = seen[0].models.get(old.model), seen[1].models.get(new.model)
    if files[0] is None or files[1] is None:
        return None
    numbers = seen[1].numbers.get(new.model, {})
    specs = _specs(new.inferences[0].inputs, files[1], numbers)
    if specs is None:
        return None
    policy = replace(asked.setup.policy, max_seconds=MODEL_SECONDS)
    setup = replace(asked.setup, policy=policy)
    asked.show_step(f"compare both versions of {new.model}")
    request, extensions = ProfileRequest(inputs=specs), asked.extensions
    before, after = Side(files[0], setup), Side(files[1], setup)
    name = printable(new.model)
    try:
        found = compare_models(before, after, request, gate, extensions, asked.watch).cases[0]
    except ModelPerfError as error:
        problem = error.worded(setup.wording)
        return ModelDuet((f"{name}: both versions could not be compared: {problem}",))
    reasons = tuple(f"{name}: {reason}" for reason in found.reasons[:_MOST_REASONS])
    is_whole = len(new.inferences) == len(old.inferences) == 1 and old.calls == new.calls
    return ModelDuet(reasons, _change_of(found, new.calls) if is_whole else None)


def _change_of(found: CaseComparison, calls: int) -> TimeChange | None:
    p50 = found.metric(MEDIAN)
    if p50 is None or p50.before is None or p50.ratio is None:
        return None
    before_ns = p50.before * _NS_PER_MS * calls
    if p50.interval is None:
        is_same = found.how is How.PLAN
        return TimeChange(ns=0.0, low_ns=0.0, high_ns=0.0) if is_same else None
    low, high = p50.interval
    return TimeChange(
        ns=before_ns * (p50.ratio - 1.0),
        low_ns=before_ns * (low - 1.0),
        high_ns=before_ns * (high - 1.0),
    )


def _specs(
    inputs: Sequence[str], model: Path, numbers: Mapping[str, float]
) -> tuple[InputSpec, ...] | None:
    """Return the inputs of an inference for a request, or None if a shape is unknown.

    A list has no type of its own, so it gets the type that the model declares, as in the runtime.
    `numbers` are the values of inputs that are single numbers.
    """
    declared = {each.name: each.dtype for each in declared_inputs(open_model(model).proto)}
    found = []
    for text in inputs:
        match = _INPUT.match(text)
        if match is None:
            return None
        name, sizes = match["name"], match["shape"]
        shape = () if sizes == _SCALAR else tuple(int(size) for size in sizes.split("x"))
        value = (numbers[name],) if name in numbers and prod(shape) == 1 else None
        dtype = match["dtype"] if match["dtype"] in BITS else declared.get(name)
        found.append(InputSpec(name, dtype or match["dtype"], shape, value))
    return tuple(found)
