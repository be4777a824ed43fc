"""The cases of a spec: each combination of its sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.limits import PHASE_WORDS
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import Phase, phases_of_all
from pytest_modelperf.obtaining.origins import ModelOrigin
from pytest_modelperf.profiler.inputs.dim_sizes import combine_sizes, varying_names
from pytest_modelperf.spec.case_spec import CaseSpec, TestedModel

if TYPE_CHECKING:
    from pytest_modelperf.profiler.records import Case
    from pytest_modelperf.profiler.request import ProfileRequest


class SizedCase(Struct, frozen=True):
    """A spec with the sizes of one case.

    `request` makes exactly this case. For a model that does not exist yet, `model` is its origin,
    and a batch size that was not given is 1, because the model's own is not known. `machine` is the
    key or tag of the machine that runs the case, or None for any.
    """

    spec: CaseSpec
    model: TestedModel | ModelOrigin
    request: ProfileRequest
    case: Case
    machine: str | None = None

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def name(self) -> str:
        """The id of the case in a run: `b8-c2`, or `b8-c2@board` if a machine is named."""
        return self.id if self.machine is None else f"{self.id}@{self.machine}"

    @property
    def origin(self) -> ModelOrigin | None:
        """Where the model comes from, if it does not exist yet."""
        return self.model if isinstance(self.model, ModelOrigin) else None

    @property
    def existing_model(self) -> TestedModel:
        """The model, which exists once its test is set up."""
        if isinstance(self.model, ModelOrigin):
            raise TypeError(f"{self.model} was not resolved")
        return self.model

    @property
    def is_function(self) -> bool:
        """Whether the model is Python code, which cannot be counted or stored."""
        return is_function(self.spec, self.model)

    @property
    def phase(self) -> Phase | None:
        """The phase of the generation, or None if the model generates nothing."""
        return self.request.phases[0] if self.request.generations else None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return tuple(each for each in self.spec.budgets if each.figure.is_of(self.phase))

    @property
    def sizes(self) -> tuple[object, ...]:
        """The sizes that distinguish it from the other cases of its spec."""
        request = self.request
        fixed = (request.batch_sizes, request.cores, dict(request.dims))
        return (*fixed, request.generations, request.phases, self.machine)

    @property
    def conditions(self) -> tuple[object, ...]:
        """Facts that are not in the id. Two cases with the same id and facts run alike.

        The engine is left out, because a run may choose another.
        """
        spec = self.spec
        dims = {name: size for name, (size,) in self.request.dims.items()}
        files = _place(self.model), _place(spec.input_file)
        return (files, dims, spec.inputs, self.request.generations, spec.workload)


def _place(source: object) -> object:
    return os.path.realpath(source) if isinstance(source, str | os.PathLike) else source


def is_function(spec: CaseSpec, model: TestedModel | ModelOrigin) -> bool:
    return callable(model) or spec.engine == "callable"


def cases_of(spec: CaseSpec) -> tuple[SizedCase, ...]:
    """Return all cases. Raise ModelError or BindingError if the model cannot have these sizes."""
    if spec.origin is not None and spec.model is None:
        return _late_cases(spec, spec.origin)
    model = spec.model
    if model is None:
        raise TypeError("a spec without a model has no cases")
    whole = spec.request()
    if is_function(spec, model):
        _require_no_baseline(spec)
        if spec.workload is not None:
            raise UsageError(
                "workload is about an ONNX model, and the model is a Python function: leave it "
                "out, and have the function run on several inputs."
            )
    parts = _parts(spec, model, whole)
    # Read once for all cases, because the file of the model has its batch size.
    return _combined(spec, model, parts, _batch_sizes(spec, model, whole))


def _late_cases(spec: CaseSpec, origin: ModelOrigin) -> tuple[SizedCase, ...]:
    """Return the cases that follow from the sizes alone, before the model exists."""
    if spec.engine == "callable":
        raise UsageError(
            f"the engine callable runs a Python function, and {origin} has a model: leave it out."
        )
    whole = spec.request()
    parts = tuple(
        replace(whole, generations=(generation,), phases=(phase.phase,))
        for generation, phase in phases_of_all(whole.generations, whole.phases)
    )
    if whole.generations and not parts:
        raise UsageError(
            "phase chooses a phase that these lengths do not have: give prompt for a prefill and "
            "generate for steps."
        )
    _require_phases(spec, [part.phases[0] for part in parts])
    return _combined(spec, origin, parts or (whole,))


def found_case(case: SizedCase, model: TestedModel, baseline: str | None) -> SizedCase:
    """Return the same case of the model that now exists, or raise UsageError if it has none."""
    spec = replace(case.spec, model=model, baseline=baseline)
    for each in cases_of(spec):
        if each.sizes == case.sizes:
            return each
    phase = "" if case.phase is None else case.phase.value
    raise UsageError(
        f"{case.origin} has no {phase} of a generation with these lengths: choose another one by "
        "phase, or give other lengths."
    )


def _combined(
    spec: CaseSpec,
    model: TestedModel | ModelOrigin,
    parts: Sequence[ProfileRequest],
    batch_sizes: Sequence[int] | None = None,
) -> tuple[SizedCase, ...]:
    """Return the case of each combination of sizes.

    `batch_sizes` are the real ones if the model is known. Otherwise, the given ones are used.
    """
    from pytest_modelperf.profiler.records import Case
    from pytest_modelperf.profiler.request import case_members

    requests = [
        replace(
            part,
            batch_sizes=(batch_size,),
            dims={name: (size,) for name, size in sizes.items()},
            named=varying_names(spec.dims),
        )
        for batch_size in spec.batch_sizes
        for sizes in combine_sizes(spec.dims)
        for part in parts
    ]
    bindings = [next(request.bindings()) for request in requests]
    batch_sizes = batch_sizes or [binding.batch_size or 1 for binding in bindings]
    return tuple(
        SizedCase(
            spec,
            model,
            replace(request, cores=(cores,)),
            Case(
                batch_size,
                cores,
                request.varying(binding),
                phase=binding.phase,
                members=case_members(request.mixture),
            ),
            machine,
        )
        for request, binding, batch_size in zip(requests, bindings, batch_sizes, strict=True)
        for cores in spec.core_counts
        for machine in spec.machines or (None,)
    )


def _require_no_baseline(spec: CaseSpec) -> None:
    given = {
        "baseline": spec.baseline,
        "tolerance": spec.tolerances,
        "measure": spec.measure,
        "output_sketch": spec.output_sketch,
    }
    words = [word for word, value in given.items() if value is not None]
    if words:
        raise UsageError(
            f"{' and '.join(words)}: a Python function has no baseline to compare it with. Leave "
            f"{'it' if len(words) == 1 else 'them'} out, and limit the function with "
            "@pytest.mark.perf_budget(latency_ms=...)."
        )


def _parts(spec: CaseSpec, model: TestedModel, whole: ProfileRequest) -> tuple[ProfileRequest, ...]:
    """Return a request for each phase of a generation, or `whole` if nothing is generated."""
    _require_no_items(spec)
    if not whole.generations:
        _require_phases(spec, ())
        return (whole,)
    if is_function(spec, model) or callable(model):
        raise UsageError(
            "prompt and generate are about an ONNX model that hands on its state, and the "
            "model is a Python function: leave them out."
        )
    from pytest_modelperf.graph.model_file import open_model
    from pytest_modelperf.profiler.request import chosen_phases

    parts = [
        replace(whole, generations=(generation,), phases=(phase.phase,))
        for generation, phase in chosen_phases(whole, open_model(model))
    ]
    _require_phases(spec, [part.phases[0] for part in parts])
    return tuple(parts)


def _require_no_items(spec: CaseSpec) -> None:
    words = [b.word for b in spec.budgets if b.figure.source is FigureSource.ITEMS]
    if words:
        raise UsageError(
            f"{words[0]} is about the items of a generator that modelperf.check runs, and a model "
            f"yields none: leave out {words[0]}."
        )


def _require_phases(spec: CaseSpec, phases: Sequence[Phase]) -> None:
    words = {b.word: b.figure.phase for b in spec.budgets if b.figure.phase is not None}
    for word, _ in () if spec.tolerances is None else spec.tolerances.phases:
        words[word] = PHASE_WORDS[word]
    for word, phase in words.items():
        if phase not in phases:
            length = "prompt" if phase is Phase.PREFILL else "generate"
            raise UsageError(
                f"{word} is about the {phase.value} of a generation, and no case of this model "
                f"is one: give {length}, or leave out {word}."
            )


def _batch_sizes(spec: CaseSpec, model: TestedModel, request: ProfileRequest) -> tuple[int, ...]:
    from pytest_modelperf.profiler.request import batch_sizes_of

    if callable(model) or is_function(spec, model):
        return tuple(binding.batch_size or 1 for binding in request.bindings())
    return batch_sizes_of(model, request)
