"""Compare two callables, or one and an ONNX model, which run in turn in this process.

A callable keeps its loaded state, so a round is a warm-up and a timed block, without a fresh
state.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import judge_rounds, side_run, with_failure
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.records import CaseComparison, How, Verdict
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import (
    MAX_BYTES,
    CasePlace,
    Sent,
    Watch,
    alone_at,
    check_cores,
)
from pytest_modelperf.profiler.pairs.run import sum_up_side, take_rounds
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, PairSide, SharedDuet, failing_as
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up
from pytest_modelperf.profiler.worker.inline import InlineWorker, work_inline
from pytest_modelperf.stats.quantiles import load_quantiles
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, list_names

Compared: TypeAlias = "Callable[..., Any] | ModelSource"

_HERE = (
    "both sides ran in this process, each in the same state in all rounds: the interval does not "
    "contain how much processes and sessions differ"
)
_UNPINNED = "no number of cores was given, so nothing was pinned to processors"
_OTHER_OUTPUTS = (
    "the outputs differ by more than rounding, so both sides may not compute the same: {}"
)


class ComparedPair(Struct, frozen=True, kw_only=True):
    """Two callables or ONNX models to compare, and their inputs.

    An ONNX model becomes a session of the engine of `setup`. A callable gets the inputs unchanged.
    A model gets them in the order of its own inputs, or by name if the only input is a dict. With
    `cores`, this process is pinned to that number of processors.
    """

    before: Compared
    after: Compared
    inputs: tuple[object, ...]
    setup: Setup
    cores: int | None = None


def compare_callables(
    pair: ComparedPair, gate: Gate, watch: Watch = lambda _: None
) -> CaseComparison:
    """Compare both sides in turn. If one fails, the comparison shows which and why."""
    load_quantiles()
    begun = time.monotonic()
    gate = replace(gate, judges_starts=False, limits=())
    cores = pair.cores or 0
    check_cores(cores, pair.setup)
    case = Case(1, cores or 1)
    try:
        with alone_at(CasePlace(case, 1, 1, watch)), work_inline(cores) as worker:
            place = CasePlace(case, 1, 1, lambda at: worker.host.run(partial(watch, at)))
            old, new = (_ready(pair, side, worker) for side in (BEFORE, AFTER))
            rigs = _rig(pair, old, worker), _rig(pair, new, worker)
            rounds = worker.host.serve(
                lambda: take_rounds(SharedDuet(*rigs), pair.setup, gate, place, rigs)
            )
            outputs = compare_outputs(_outputs_of(old), _outputs_of(new))
            compared = judge_callables(case, rounds, gate, outputs)
            before = side_run(sum_up_side(rigs[0], rounds), compared.metrics, is_before=True)
            after = side_run(sum_up_side(rigs[1], rounds), compared.metrics)
    except MeasureError as error:
        failure = error.worded(pair.setup.wording)
        return with_failure(CaseComparison(case, (), ()), failure, error.side)
    notes = (*compared.notes, _HERE, *(() if cores else (_UNPINNED,)))
    seconds = time.monotonic() - begun
    return replace(compared, before=before, after=after, notes=notes, seconds=seconds)


def judge_callables(
    case: Case, rounds: Sequence[DuetRound], gate: Gate, outputs: Sequence[OutputChange]
) -> CaseComparison:
    metrics = judge_rounds(rounds, gate).metrics
    if gate.tolerances.outputs is not None:
        metrics = (*metrics, judge_outputs(outputs, gate.tolerances.outputs))
    return CaseComparison(
        case,
        metrics,
        (),
        outputs=tuple(outputs),
        notes=_notes_on(outputs),
        rounds=len(rounds),
        how=How.DUET,
    )


def _notes_on(outputs: Sequence[OutputChange]) -> tuple[str, ...]:
    differing = [
        each
        for each in outputs
        if judge_outputs((each,), DEFAULT_OUTPUTS).verdict is Verdict.REGRESSED
    ]
    return (_OTHER_OUTPUTS.format("; ".join(map(_describe, differing))),) if differing else ()


def _describe(change: OutputChange) -> str:
    name = printable(change.name)
    if change.difference is not None:
        return f"{name}, {change.difference}"
    return f"{name}, by {100 * (change.share or 0.0):.3g} % of its largest value"


class _Ready(Struct, frozen=True):
    side: PairSide
    function: Callable[[], Any]
    names: Sequence[str] | None = None


def _ready(pair: ComparedPair, side: PairSide, worker: InlineWorker) -> _Ready:
    source = pair.before if side == BEFORE else pair.after
    if callable(source):
        function = partial(source, *pair.inputs)
        # Errors refer to the function by this name.
        vars(function)["__qualname__"] = getattr(source, "__qualname__", type(source).__name__)
        return _Ready(side, function)
    return _load(pair, open_model(source), side, worker)


def _load(pair: ComparedPair, file: ModelFile, side: PairSide, worker: InlineWorker) -> _Ready:
    feeds = feeds_of([each.name for each in declared_inputs(file.proto)], pair.inputs, file.name)
    engine, options = pair.setup.engine, pair.setup.options
    path = file.path
    if path is None:
        path = worker.folder / f"{side}.onnx"
        path.write_bytes(file.data)
    module: Any = importlib.import_module(engine.module)
    try:
        session = module.load(_ModelPlace(str(path)), pair.cores or 0, options)
        types = {name: _type_of(array) for name, array in feeds.items()}
        function = session.prepare(feeds, types)
        # The engine provides only the names here; the values come from the function itself.
        names = tuple(session.read_outputs())
    except Exception as error:
        failed = MeasureError(
            f"{printable(file.name)} did not run: {type(error).__name__}: {printable(str(error))}"
        )
        failed.side = side
        raise failed from error
    return _Ready(side, function, names)


class _ModelPlace(Struct, frozen=True):
    path: str
    folder: str | None = None


def feeds_of(
    names: Sequence[str], inputs: Sequence[object], model: str
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a model by name: in its order, or those of one dict."""
    given: Mapping[Any, object]
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        given = inputs[0]
    else:
        if len(inputs) > len(names):
            raise UsageError(
                f"modelperf.compare: {printable(model)} has {count_of(len(names), 'input')}, and "
                f"{len(inputs)} are given: give one for each, or a dict by name."
            )
        given = dict(zip(names, inputs, strict=False))
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        raise UsageError(
            f"modelperf.compare: {printable(model)} has no input {printable(unknown[0])!r}. It "
            f"has: {list_names(names)}."
        )
    return {str(name): as_array(value) for name, value in given.items()}


def as_array(value: object) -> np.ndarray[Any, Any]:
    """Return the value as an array, from any device if it is a tensor of torch."""
    for method in ("detach", "cpu"):
        value = getattr(value, method, lambda value=value: value)()
    return np.asarray(value)


def _type_of(array: np.ndarray[Any, Any]) -> str:
    return "string" if array.dtype.kind in "OU" else array.dtype.name


def _rig(pair: ComparedPair, ready: _Ready, worker: InlineWorker) -> Rig:
    setup = replace(pair.setup, engine=BUILT_IN[CALLABLE_ENGINE], options={})
    with failing_as(ready.side):
        return set_up(worker, setup, pair.cores or 0, Workload(model=ready.function), ready.side)


def _outputs_of(ready: _Ready) -> dict[str, Sent]:
    try:
        result = ready.function()
    except Exception as error:
        failed = MeasureError(f"it failed with {type(error).__name__}: {printable(str(error))}")
        failed.side = ready.side
        raise failed from error
    return sent_outputs(result, ready.names)


def sent_outputs(result: object, names: Sequence[str] | None = None) -> dict[str, Sent]:
    """Return the result of a call as arrays by name: dict keys, or positions in a sequence."""
    outputs: Mapping[Any, object]
    if isinstance(result, Mapping):
        outputs = result
    elif isinstance(result, list | tuple):
        found = names if names is not None and len(names) == len(result) else None
        outputs = dict(zip(found or _numbered(len(result)), result, strict=True))
    else:
        outputs = {"output": result}
    sent: dict[str, Sent] = {}
    left = MAX_BYTES
    for name, value in outputs.items():
        array = as_array(value)
        fits = array.dtype.kind in "biufc" and array.nbytes <= left
        left -= array.nbytes if fits else 0
        shape = tuple(map(int, array.shape))
        sent[str(name)] = (array.dtype.str, shape, array.tobytes() if fits else None)
    return sent


def _numbered(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output {number}" for number in range(1, count + 1)]
