"""The models of a program: the MACs of their inferences, and why a changed one takes longer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import median_gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.sides import WatchedWork
from pytest_modelperf.programs.work import SessionPair
from pytest_modelperf.text.escaping import printable

_MODEL_SECONDS = 10.0
_MOST_REASONS = 4
_INPUT = re.compile(r"^(?P<name>.*): (?P<shape>\d+(x\d+)*) (?P<dtype>\w+)$")


class MacsCounter:
    """Counts the MACs of the inferences of a watched call; `notes` say what it cannot count."""

    def __init__(self, watched: WatchedWork) -> None:
        self._models = {
            session.sha256: session.model
            for session in watched.work.sessions
            if session.sha256 is not None
        }
        self._files = watched.models
        self._failures: dict[str, str] = {}

    def __call__(self, sha256: str, inputs: Sequence[str]) -> int | None:
        """The MACs of one inference; None if they cannot be counted."""
        model = self._models.get(sha256, "")
        path, specs = self._files.get(model), _specs(inputs)
        if path is None or specs is None:
            return None
        try:
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


def model_reasons(
    asked: ProgramCheck,
    pair: SessionPair,
    before: Mapping[str, Path],
    after: Mapping[str, Path],
) -> Iterator[str]:
    """Why a changed model takes longer: a duet of both models, as of models alone."""
    old, new = pair.before, pair.after
    if old is None or new is None or old.model not in before or new.model not in after:
        return
    specs = _specs(new.inferences[0].inputs) if new.inferences else None
    if specs is None:
        return
    policy = replace(asked.setup.policy, max_seconds=_MODEL_SECONDS)
    setup = replace(asked.setup, policy=policy)
    asked.show_step(f"compare both versions of {new.model}")
    gate = median_gate(asked.gate.tolerance, asked.gate.level, _MODEL_SECONDS)
    request, extensions = ProfileRequest(inputs=specs), asked.extensions
    name = printable(new.model)
    try:
        found = compare_models(
            Side(before[old.model], setup),
            Side(after[new.model], setup),
            request,
            gate,
            extensions,
            asked.watch,
        )
    except ModelPerfError as error:
        yield f"{name}: both versions could not be compared: {error.worded(setup.wording)}"
        return
    for reason in found.cases[0].reasons[:_MOST_REASONS]:
        yield f"{name}: {reason}"


def _specs(inputs: Sequence[str]) -> tuple[InputSpec, ...] | None:
    """The inputs of an inference for a request; None if a shape is unknown."""
    found = []
    for text in inputs:
        match = _INPUT.match(text)
        if match is None:
            return None
        shape = tuple(int(size) for size in match["shape"].split("x"))
        found.append(InputSpec(match["name"], match["dtype"], shape))
    return tuple(found)
