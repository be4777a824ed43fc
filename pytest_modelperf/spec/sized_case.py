"""The cases of a spec: each combination of its sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.limits import PHASE_WORDS, Budget
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.inputs.dim_sizes import combine_sizes, varying_names
from pytest_modelperf.spec.case_spec import CaseSpec, TestedModel

if TYPE_CHECKING:
    from pytest_modelperf.profiler.records import Case
    from pytest_modelperf.profiler.request import ProfileRequest


class SizedCase(Struct, frozen=True):
    """A spec with the sizes of one case.

    `request` makes exactly this case. `machine` is the key or tag of the machine that runs it;
    None: any.
    """

    spec: CaseSpec
    model: TestedModel
    request: ProfileRequest
    case: Case
    machine: str | None = None

    @property
    def id(self) -> str:
        """The id of its baseline."""
        return self.case.id

    @property
    def name(self) -> str:
        """The id of the case in a run: `b8-c2`, or `b8-c2@board` where a machine is named."""
        return self.id if self.machine is None else f"{self.id}@{self.machine}"

    @property
    def is_function(self) -> bool:
        """Whether the model is Python code: nothing in it can be counted or stored."""
        return is_function(self.spec, self.model)

    @property
    def phase(self) -> Phase | None:
        """The phase of a generation that it is."""
        return self.request.phases[0] if self.request.generations else None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of its spec that a case of its phase has a figure for."""
        return tuple(each for each in self.spec.budgets if each.figure.is_of(self.phase))

    @property
    def conditions(self) -> tuple[object, ...]:
        """Facts that the id does not tell: two cases with the same id and facts run alike.

        The engine is not among them: a run may choose it.
        """
        spec = self.spec
        dims = {name: size for name, (size,) in self.request.dims.items()}
        files = _place(self.model), _place(spec.input_file)
        return (files, dims, spec.inputs, self.request.generations, spec.workload)


def _place(source: object) -> object:
    """The place of a file, however its path is written; anything else as it is."""
    return os.path.realpath(source) if isinstance(source, str | os.PathLike) else source


def is_function(spec: CaseSpec, model: TestedModel) -> bool:
    return callable(model) or spec.engine == "callable"


def cases_of(spec: CaseSpec) -> tuple[SizedCase, ...]:
    """All cases; ModelError or BindingError if the model cannot have these sizes."""
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
    from pytest_modelperf.profiler.records import Case
    from pytest_modelperf.profiler.request import case_members

    # Read once for all cases: what names the batch size is in the model.
    batch_sizes = _batch_sizes(spec, model, whole)
    bindings = [next(request.bindings()) for request in requests]
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
    """UsageError for words about the baseline of a function, which has none."""
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
    """The request for each phase of a generation; the whole where nothing is generated.

    UsageError for words about phases that the model lacks.
    """
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


def _require_phases(spec: CaseSpec, phases: Sequence[Phase]) -> None:
    """UsageError for a word about a phase that no case is."""
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
    """The batch size of each combination of a batch size and dimensions."""
    from pytest_modelperf.profiler.request import batch_sizes_of

    if callable(model) or is_function(spec, model):
        return tuple(binding.batch_size or 1 for binding in request.bindings())
    return batch_sizes_of(model, request)
