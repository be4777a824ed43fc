"""Checks that a model or twin is the recorded one, and the request of the baseline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline, ModelBaseline, StoredCase, StoredStatic
from pytest_modelperf.errors import BaselineError, ModelError
from pytest_modelperf.graph.binding import InputSpec, dim_names
from pytest_modelperf.graph.load import declared_inputs, declared_outputs
from pytest_modelperf.graph.model_bytes import Tell
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.structure import Generation, Phase
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.graph.twin import Twin, left_out_bytes
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes, combine_sizes, pair_sizes
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_count
from pytest_modelperf.text.words import count_of, shorten_list


class _Figure(Struct, frozen=True):
    """A figure that changes with a wider or longer graph, and how it is shown."""

    name: str
    read: Callable[[StoredStatic | StaticProfile], int]
    show: Callable[[int], str] = format_count


# These figures do not depend on the inputs.
_OF_WEIGHTS = (
    _Figure("params", lambda static: static.params),
    _Figure("of weights", lambda static: static.weight_bytes, format_bytes),
)
_FIGURES = (
    _Figure("MACs", lambda static: static.macs),
    *_OF_WEIGHTS,
    _Figure("elementwise operations", lambda static: static.elementwise_ops),
    _Figure("of activations", lambda static: static.activation_bytes, format_bytes),
)
# The figures of a layer type by their keys in `model.json`, and their units as text.
_OF_LAYERS: Mapping[str, str] = {
    "macs": "MACs",
    "elementwise_ops": "elementwise operations",
    "backward_macs": "backward MACs",
    "params": "params",
    "weight_bytes": "bytes of weights",
    "output_bytes": "bytes of outputs",
    "domain": "as the domain",
}
# A message names at most this many figures.
_MOST_NAMED = 8


def require_recorded_twin(baseline: Baseline, twin: Twin, models: Sequence[Model]) -> None:
    """Raise BaselineError if counts or structure of a twin differ from those of its baseline.

    `models` are the twin, bound to the sizes of its cases. Cases of other models are skipped.
    """
    known = None if baseline.model.twin is None else baseline.model.twin.left_out_bytes
    claimed = left_out_bytes(twin)
    if known is not None and known != claimed:
        sizes = format_bytes(claimed), format_bytes(known)
        raise _other_twin(
            baseline.name, f"it leaves out {sizes[0]} of weights, and model.json says {sizes[1]}"
        )
    for model in models:
        for cores in model.request.cores:
            case = model.case(cores)
            stored = baseline.model.case(case.id)
            if stored is None or baseline.model.twin_refusal(case.id) is not None:
                continue
            if dict(stored.dims) != model.binding.own_dims:
                continue
            if stored.inputs == model.given_inputs:
                found = other_counts(stored.static, model.static)
            else:
                found = _describe([*_differences(stored.static, model.static, _OF_WEIGHTS)])
            if found is not None:
                raise _other_twin(baseline.name, _describe_counts(stored, found))
    _require_structure(baseline, models[0].file)


def _require_structure(baseline: Baseline, twin: ModelFile) -> None:
    for case in baseline.model.cases:
        if baseline.model.has_twin_of(case.id) and not has_recorded_structure(case, twin):
            raise _other_twin(baseline.name, _describe_structure(case))


def has_claimed_structure(
    baseline: ModelBaseline, twin: ModelFile | None, stored: StoredCase
) -> bool:
    """Whether the twin has the structure that `model.json` claims for the model of a case.

    Raises BaselineError if it is named as the twin of that model but has another structure.
    """
    if twin is None:
        return False
    has_it = has_recorded_structure(stored, twin)
    if not has_it and baseline.has_twin_of(stored.id):
        raise _other_twin(baseline.model.name, _describe_structure(stored))
    return has_it


def has_claimed_work(
    baseline: ModelBaseline, twin: ModelFile | None, stored: StoredCase, now: Model
) -> bool:
    """Whether the twin has the structure and the counts that `model.json` claims for a case.

    `now` is the present model, which has both and gives the sizes. Raises BaselineError as
    `has_claimed_structure` does.
    """
    if twin is None or not has_claimed_structure(baseline, twin, stored):
        return False
    found = other_counts(stored.static, _bound_like(now, twin).static)
    if found is not None and baseline.has_twin_of(stored.id):
        raise _other_twin(baseline.model.name, _describe_counts(stored, found))
    return found is None


def has_lost_its_twin(baseline: ModelBaseline, twin: ModelFile | None, stored: StoredCase) -> bool:
    """Whether a case had a twin when it was recorded, but the baseline has none of its structure.

    A later recording of other cases can replace the twin. Otherwise the case was edited.
    """
    has_it = has_claimed_structure(baseline, twin, stored)
    fidelity = stored.fidelity
    had_one = twin is not None if fidelity is None else fidelity.was_compared
    return had_one and not has_it


def _bound_like(now: Model, twin: ModelFile) -> Model:
    """Bind the twin to the sizes of a model of its structure. Its inputs may have other names."""
    inputs, outputs = (
        {new.name: old.name for new, old in zip(of(now.file.proto), of(twin.proto), strict=True)}
        for of in (declared_inputs, declared_outputs)
    )

    def renamed(specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
        return tuple(replace(spec, name=inputs.get(spec.name, spec.name)) for spec in specs)

    binding = replace(
        now.binding,
        inputs=renamed(now.binding.inputs),
        members=tuple(
            replace(member, inputs=renamed(member.inputs)) for member in now.binding.members
        ),
        state={
            inputs.get(past, past): outputs.get(present, present)
            for past, present in now.binding.state.items()
        },
    )
    return Model.bind_whole(twin, binding, now.request, now.extensions)


def require_recorded_counts(name: str, stored: StoredCase, now: StaticProfile) -> None:
    """Raise BaselineError if a model of the recorded digest does not have the recorded counts."""
    found = other_counts(stored.static, now)
    if found is not None:
        raise BaselineError(
            f"model.json of the baseline of {printable(name)} contradicts itself at "
            f"{printable(stored.id)}: its sha256 is that of the model as it is now, which has "
            f"{found}. Restore the folder from version control. If another version or a plugin "
            "counts differently, record it again with "
            "`pytest --modelperf --modelperf-update-baseline`."
        )


def require_recorded_structure(name: str, stored: StoredCase, model: ModelFile, tell: Tell) -> None:
    """Raise BaselineError if a model of the recorded digest lacks the recorded structure."""
    if has_recorded_structure(stored, model) or not _has_recorded_digest(stored, model, tell):
        return
    raise BaselineError(
        f"model.json of the baseline of {printable(name)} contradicts itself at "
        f"{printable(stored.id)}: its sha256 is that of the model as it is now, which has other "
        "operators, attributes or connections than its structure says. Restore the folder from "
        "version control, or record it again with `pytest --modelperf --modelperf-update-baseline`."
    )


def has_recorded_structure(stored: StoredCase, model: ModelFile) -> bool:
    return stored.structure == digest_structure(model)


def _has_recorded_digest(stored: StoredCase, model: ModelFile, tell: Tell) -> bool:
    """Whether a model is the recorded one. This is False if some of its data is missing."""
    try:
        return stored.model_sha256 is not None and stored.model_sha256 == model.sha256(tell)
    except ModelError:
        return False


def other_counts(stored: StoredStatic, now: StaticProfile) -> str | None:
    """Describe the totals and layer types that differ from the recorded ones, or return None."""
    return _describe([*_differences(stored, now, _FIGURES), *_other_layers(stored, now)])


# A figure as it is counted now and as it was recorded, as text.
_Difference: TypeAlias = tuple[str, str]


def _describe(differences: Sequence[_Difference]) -> str | None:
    """Return text such as `3.072 k MACs (model.json says 2.048 k), 1 layer of Sign (0)`."""
    if not differences:
        return None
    (now, recorded), *others = differences
    figures = [f"{now} (model.json says {recorded})", *(f"{new} ({old})" for new, old in others)]
    return shorten_list(figures, _MOST_NAMED)


def _other_layers(stored: StoredStatic, now: StaticProfile) -> Iterator[_Difference]:
    found, known = now.layer_types, stored.layer_types
    for op in sorted({*found, *known}):
        shown = printable(op)
        counts = [0 if op not in side else side[op].count for side in (found, known)]
        if counts[0] != counts[1]:
            yield f"{count_of(counts[0], 'layer')} of {shown}", f"{counts[1]:,}"
            continue
        for name, unit in _OF_LAYERS.items():
            values = getattr(found[op], name), getattr(known[op], name)
            if values[0] != values[1]:
                texts = [_shown(value) for value in values]
                yield f"{texts[0]} {unit} in {shown}", texts[1]


def _shown(value: int | str | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else printable(value) or "no"


def _differences(
    stored: StoredStatic, twin: StaticProfile, figures: Sequence[_Figure]
) -> Iterator[_Difference]:
    for figure in figures:
        found, known = figure.read(twin), figure.read(stored)
        if found != known:
            yield f"{figure.show(found)} {figure.name}", figure.show(known)


def _describe_structure(case: StoredCase) -> str:
    return (
        "its operators, attributes or connections are not those that were recorded at "
        f"{printable(case.id)}"
    )


def _describe_counts(case: StoredCase, found: str) -> str:
    return f"at {printable(case.id)} it has {found}"


def _other_twin(name: str, found: str) -> BaselineError:
    return BaselineError(
        f"twin.onnx of the baseline {printable(name)} is not the twin of the model that "
        f"was recorded: {found}. Restore the folder from version control. "
        "If another version or a plugin counts differently, record it again with "
        "`pytest --modelperf --modelperf-update-baseline`."
    )


# -- the request with which a baseline was recorded


def request_as_recorded(
    request: ProfileRequest, baseline: ModelBaseline, source: ModelSource
) -> ProfileRequest:
    """Add the recorded sizes of dimensions for which the request has none.

    The ids of cases name these sizes as the baseline does. A request with given shapes, which may
    have sizes, or with paired sizes, which are complete, stays as it is. If only phases of
    generations were recorded and the request names no generation, it gets the recorded ones.
    """
    request = _with_generations(request, baseline)
    if request.inputs or request.given is not None or isinstance(request.dims, PairedSizes):
        return request
    declared = dim_names(declared_inputs(open_model(source).proto))
    recorded: dict[str, dict[int, None]] = {}
    named: dict[str, None] = {}
    for case in baseline.cases:
        own = case.id.removeprefix(Case(case.batch_size, case.cores).id)
        places = {name: _place(f"{name}{size}", own) for name, size in case.dims.items()}
        for name in sorted(declared & places.keys() - request.dims.keys(), key=places.__getitem__):
            recorded.setdefault(name, {})[case.dims[name]] = None
            if places[name] >= 0:
                named[name] = None
    dims: Mapping[str, tuple[int, ...]] = {
        **request.dims,
        **{name: tuple(sizes) for name, sizes in recorded.items()},
    }
    cases = [{n: case.dims[n] for n in recorded if n in case.dims} for case in baseline.cases]
    is_whole = not request.dims and all(case.keys() == recorded.keys() for case in cases)
    if is_whole and any(case not in cases for case in combine_sizes(dims)):
        # Not every combination was recorded, so the sizes of each case stay together.
        dims = pair_sizes([case for at, case in enumerate(cases) if case not in cases[:at]])
    return replace(request, dims=dims, named=(*request.named, *named))


def _with_generations(request: ProfileRequest, baseline: ModelBaseline) -> ProfileRequest:
    recorded = [case.generation for case in baseline.cases if case.generation is not None]
    if request.generations or not recorded or len(recorded) < len(baseline.cases):
        return request
    known = [Generation(each.prompt, each.generate, each.state) for each in recorded]
    phases = tuple(phase for phase in Phase if phase in {each.phase for each in recorded})
    distinct = tuple(each for at, each in enumerate(known) if each not in known[:at])
    return replace(request, generations=distinct, phases=phases)


def _place(dim: str, own: str) -> int:
    """Return the position of a dimension in this rest of a case's id, or -1."""
    found = re.search(rf"-{re.escape(dim)}(?=-|$)", own)
    return -1 if found is None else found.start()
