"""A request to profile a model: its cases, and the static profile of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ModelError, Remedy, UsageError
from pytest_modelperf.graph.binding import Binding, InputSpec, bind_inputs, dim_names
from pytest_modelperf.graph.inference_inputs import bind_phase, phases_of_model
from pytest_modelperf.graph.load import (
    Asked,
    BoundModel,
    asking,
    declared_inputs,
    declared_outputs,
    load_model,
)
from pytest_modelperf.graph.model_bytes import Tell
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model, require_inside
from pytest_modelperf.graph.state import find_state
from pytest_modelperf.graph.structure import Generation, GenerationPhase, Phase, phases_of_all
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import MemberCounts, StaticProfile
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes, combine_sizes, varying_names
from pytest_modelperf.profiler.inputs.given import GivenInputs, specs_of
from pytest_modelperf.profiler.inputs.mixture import Arrivals, Mixture, WorkloadMember
from pytest_modelperf.profiler.records import Case, CaseMember, CaseProfile, ModelFacts, Profile
from pytest_modelperf.profiler.worker.timing import paused_gc
from pytest_modelperf.text.escaping import printable

# A static profile does not read weights, but the digest must: only of files up to this size.
MAX_HASHED_BYTES = 64 * 1024 * 1024


class ProfileRequest(Struct, frozen=True):
    """A request to profile a model at every combination of these values.

    A batch size of None is the model's own, or 1. The id of a case names the dimensions that vary,
    and those `named`, as for a part of a larger request. With `sparsity` the weights are read.
    `given` has values for inputs of a model that is run; other inputs are made from `seed`. With a
    `mixture`, each case is a workload of its members, whose dimensions are not among `dims`. The
    inferences of a model that is measured alone arrive as `arrivals` specifies. With `generations`,
    each of their `phases` is a case. `has_cores` is whether the user asked for these `cores`: a
    Python function is pinned only then.
    """

    batch_sizes: tuple[int | None, ...] = (None,)
    cores: tuple[int, ...] = (1,)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    sparsity: bool = False
    given: GivenInputs | None = None
    seed: int = 0
    named: tuple[str, ...] = ()
    generations: tuple[Generation, ...] = ()
    phases: tuple[Phase, ...] = tuple(Phase)
    has_cores: bool = True
    mixture: Mixture | None = None
    arrivals: Arrivals | None = None

    def bindings(self) -> Iterator[Binding]:
        """Yield every combination of batch size, dimensions and phase, even those no model has."""
        wanted = phases_of_all(self.generations, self.phases)
        for batch_size in self.batch_sizes:
            for sizes in combine_sizes(self.dims):
                binding = self._with_members(Binding(batch_size, sizes, self.inputs))
                if not self.generations:
                    yield binding
                for generation, phase in wanted:
                    yield replace(binding, phase=phase, state=generation.state)

    def _with_members(self, binding: Binding) -> Binding:
        if self.mixture is None:
            return binding

        def of(member: WorkloadMember) -> Binding:
            return replace(binding, dims={**binding.dims, **member.dims})

        return replace(of(self.mixture.largest), members=tuple(map(of, self.mixture.members)))

    def bindings_of(self, file: ModelFile) -> tuple[Binding, ...]:
        """Return the bindings whose phase the model has. Raise UsageError if there is none."""
        if not self.generations:
            return tuple(self.bindings())
        had = {phase for _, phase in chosen_phases(self, file)}
        return tuple(binding for binding in self.bindings() if binding.phase in had)

    def varying(self, binding: Binding) -> tuple[tuple[str, int], ...]:
        """Return the dimensions that distinguish the cases of this request."""
        names = {*varying_names(self.dims), *self.named}
        return tuple((name, binding.dims[name]) for name in self.dims if name in names)

    def case(self, binding: Binding, batch_size: int, cores: int) -> Case:
        return Case(
            batch_size,
            cores,
            self.varying(binding),
            given_dims=tuple(binding.own_dims.items()),
            phase=binding.phase,
            members=case_members(self.mixture),
        )

    def split(self) -> tuple[ProfileRequest, ...]:
        """Return one request for each case, in the order of the profile."""
        return tuple(
            replace(
                self,
                batch_sizes=(binding.batch_size,),
                cores=(cores,),
                # A workload gives further dimensions their sizes, member by member.
                dims={name: (binding.dims[name],) for name in self.dims},
                named=tuple(name for name, _ in self.varying(binding)),
                **_phase_of(binding),
            )
            for binding in self.bindings()
            for cores in self.cores
        )


def _phase_of(binding: Binding) -> dict[str, object]:
    phase = binding.phase
    if phase is None:
        return {"generations": (), "phases": tuple(Phase)}
    generation = Generation(phase.prompt, phase.generate, binding.state)
    return {"generations": (generation,), "phases": (phase.phase,)}


def phases_of(
    file: ModelFile, generation: Generation, dims: Mapping[str, int] | None = None
) -> tuple[GenerationPhase, ...]:
    """Return the phases that a model has of a generation. Raise UsageError if it has none."""
    declared = declared_inputs(file.proto), declared_outputs(file.proto)
    return phases_of_model(*declared, generation, file.name, dims)


def chosen_phases(
    request: ProfileRequest, file: ModelFile
) -> tuple[tuple[Generation, GenerationPhase], ...]:
    """Return the phases of a request that the model has. Raise UsageError without any."""
    dims = {name: sizes[0] for name, sizes in request.dims.items()}
    known = dict.fromkeys(
        phase for each in request.generations for phase in phases_of(file, each, dims)
    )
    wanted = phases_of_all(request.generations, request.phases)
    if not wanted:
        chosen = " and ".join(phase.value for phase in request.phases)
        has = " and ".join(_phase_names(tuple(known)))
        raise UsageError(
            f"phase chooses {chosen}, and {file.name} has {has} alone with these lengths: "
            "leave out phase, or give prompt for a prefill and generate for steps."
        )
    # If no phase is left, binding the model raises an error with the reason.
    return tuple((each, phase) for each, phase in wanted if phase in known) or wanted


def with_phases_of(request: ProfileRequest, cases: Iterable[Case]) -> ProfileRequest:
    """Return the request without the phases of a generation that its cases do not have."""
    found = {case.phase.phase for case in cases if case.phase is not None}
    return replace(request, phases=tuple(phase for phase in request.phases if phase in found))


def request_of_each(
    request: ProfileRequest, files: Sequence[ModelFile]
) -> tuple[ProfileRequest, ...]:
    """Return the request for each of the models that are compared.

    If a model fixes a dimension, its size is only for the others. Several sizes are requested of
    all models, because a model without that dimension cannot follow them. If a model lacks an input
    that the user names as state, that pair is also only for the others.
    """
    declared = [declared_inputs(file.proto) for file in files]
    requests = _with_own_state(request, [{each.name for each in own} for own in declared])
    if isinstance(request.dims, PairedSizes):
        return requests
    own = [dim_names(inputs) for inputs in declared]
    known = frozenset[str]().union(*own)
    found = []
    for each, names in zip(requests, own, strict=True):
        foreign = known - names
        kept = {n: sizes for n, sizes in request.dims.items() if n not in foreign or len(sizes) > 1}
        found.append(replace(each, dims=kept))
    return tuple(found)


def _with_own_state(
    request: ProfileRequest, inputs: Sequence[AbstractSet[str]]
) -> tuple[ProfileRequest, ...]:
    known = frozenset[str]().union(*inputs)
    found = []
    for own in inputs:
        foreign = known - own
        states = [
            {past: present for past, present in each.state.items() if past not in foreign}
            for each in request.generations
        ]
        pairs = zip(request.generations, states, strict=True)
        generations = tuple(replace(each, state=state) for each, state in pairs)
        found.append(replace(request, generations=generations))
    return tuple(found)


def require_equal_phases(files: Sequence[ModelFile], requests: Sequence[ProfileRequest]) -> None:
    """Raise UsageError if models that are compared have different phases of a generation."""
    phases = [
        [binding.phase for binding in own.bindings_of(file)]
        for file, own in zip(files, requests, strict=True)
    ]
    if any(found != phases[0] for found in phases):
        has = [
            f"{file.name} has the phase {' and '.join(_phase_names(own))}"
            for file, own in zip(files, phases, strict=True)
        ]
        raise UsageError(
            f"{', and '.join(has)}: they cannot be compared. Ask for the phase that both have: a "
            "prompt alone has the prefill, generated tokens alone have steps."
        )


def _phase_names(phases: Sequence[GenerationPhase | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.phase.value for each in phases if each is not None))


def require_equal_batches(files: Sequence[ModelFile], sizes: Sequence[Sequence[int]]) -> None:
    """Raise UsageError if models that are compared run at different batch sizes."""
    if any(found != sizes[0] for found in sizes):
        first_file, last_file = files[0], files[-1]
        raise UsageError(
            f"{first_file.name} runs at batch sizes {_listed(sizes[0])} and {last_file.name} at "
            f"{_listed(sizes[-1])}: they cannot be compared.",
            Remedy("Give both the same with {batch}."),
        )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(sizes)))


def batch_sizes_of(source: ModelSource, request: ProfileRequest) -> tuple[int, ...]:
    """Return the batch size of each binding of a request, read from the inputs alone."""
    file = open_model(source)
    return tuple(
        _batch_size(with_given(binding, request, file), file)
        for binding in request.bindings_of(file)
    )


def _batch_size(binding: Binding, file: ModelFile) -> int:
    inputs = declared_inputs(file.proto)
    phase = bind_phase(inputs, declared_outputs(file.proto), binding, file.name)
    if phase is not None:
        return phase.batch_size
    with asking(Asked(file, binding, {})):
        return bind_inputs(inputs, binding, file.name).batch_size


def with_given(binding: Binding, request: ProfileRequest, file: ModelFile) -> Binding:
    """Return the binding with the sizes of the given arrays, if there are any.

    The sizes of tokens and state follow from the phase of a generation. Each member of a workload
    has arrays of its own, or none.
    """
    if request.mixture is not None:
        members = tuple(
            _with_arrays(own, member.given, file)
            for own, member in zip(binding.members, request.mixture.members, strict=True)
        )
        whole = _with_arrays(binding, request.mixture.largest.given, file)
        return replace(whole, members=members)
    return _with_arrays(binding, request.given, file)


def _with_arrays(binding: Binding, given: GivenInputs | None, file: ModelFile) -> Binding:
    if given is None:
        return binding
    inputs = declared_inputs(file.proto)
    specs = specs_of(given, inputs, file.name)
    if binding.phase is not None:
        state = find_state(inputs, declared_outputs(file.proto), binding.state, file.name)
        own = {pair.past for pair in state.pairs} | {each.name for each in state.tokens}
        specs = tuple(spec for spec in specs if spec.name not in own)
    return replace(binding, inputs=(*binding.inputs, *specs))


def profile_model(
    source: ModelSource, request: ProfileRequest | None = None, operators: Operators | None = None
) -> Profile:
    return _profile_file(open_model(source), request or ProfileRequest(), operators or Operators())


def profile_both(
    before: ModelSource, after: ModelSource, request: ProfileRequest, operators: Operators
) -> tuple[Profile, Profile]:
    """Return the static profiles of two models that are compared, at the same batch sizes."""
    files = open_model(before), open_model(after)
    requests = request_of_each(request, files)
    require_equal_phases(files, requests)
    old, new = (
        _profile_file(file, own, operators) for file, own in zip(files, requests, strict=True)
    )
    require_equal_batches(files, [[each.case.batch_size for each in p.cases] for p in (old, new)])
    return old, new


def _profile_file(file: ModelFile, request: ProfileRequest, operators: Operators) -> Profile:
    require_inside(file)
    cases: list[CaseProfile] = []
    for binding in request.bindings_of(file):
        whole = with_given(binding, request, file)
        # A collection would look at all records of a graph and free none.
        with paused_gc(collects=False):
            bound = load_model(file, whole, operators.shape_rules)
            static = profile_bound(bound, operators, sparsity=request.sparsity)
        members = bind_members(file, whole, operators)
        static = with_members(static, members, request.mixture, operators)
        batch_size = bound.inputs.batch_size
        found = [request.case(binding, batch_size, cores) for cores in request.cores]
        cases.extend(CaseProfile(case, static) for case in found)
    return Profile(model_facts(file), tuple(cases))


def case_members(mixture: Mixture | None) -> tuple[CaseMember, ...]:
    if mixture is None:
        return ()
    return tuple(
        CaseMember(member.name, member.weight, member is mixture.largest)
        for member in mixture.members
    )


def bind_members(file: ModelFile, binding: Binding, operators: Operators) -> tuple[BoundModel, ...]:
    """Bind the model to each member of a workload. Raise UsageError if batch sizes differ."""
    bound = tuple(load_model(file, own, operators.shape_rules) for own in binding.members)
    sizes = [each.inputs.batch_size for each in bound]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"the members of the workload of {file.name} have batch sizes {_listed(sizes)}: give "
            "them the same, and each batch size a case of its own."
        )
    return bound


def with_members(
    static: StaticProfile,
    members: Sequence[BoundModel],
    mixture: Mixture | None,
    operators: Operators,
) -> StaticProfile:
    """Return the counts of the largest member of a workload with those of each member."""
    if mixture is None:
        return static
    found = []
    for each, bound in zip(mixture.members, members, strict=True):
        counted = profile_graph(bound.graph, operators.counters)
        macs = counted.macs if counted.is_whole else None
        found.append(MemberCounts(name=each.name, weight=each.weight, macs=macs))
    return replace(static, members=tuple(found))


def profile_bound(
    bound: BoundModel, operators: Operators, *, sparsity: bool = False
) -> StaticProfile:
    profile = count_bound(bound, operators)
    if bound.phase is not None:
        from pytest_modelperf.profiler.generation import count_generation

        counts = count_generation(bound, bound.phase, operators)
        profile = replace(profile, generation=counts)
    if sparsity:
        # Imported here, because only this needs numpy's more costly parts.
        from pytest_modelperf.profiler.counting.sparsity import add_sparsity

        profile = add_sparsity(profile, bound)
    return profile


def count_bound(bound: BoundModel, operators: Operators) -> StaticProfile:
    """Return the counts of the graph of a bound model, with notes on its shapes."""
    profile = profile_graph(bound.graph, operators.counters)
    if bound.rewritten:
        names = ", ".join(printable(name) for name in bound.rewritten[:3])
        more = ", ..." if len(bound.rewritten) > 3 else ""
        note = (
            f"the model fixes its batch; {len(bound.rewritten)} Reshape targets were made to "
            f"follow {bound.inputs.batch_size} ({names}{more})"
        )
        profile = replace(profile, notes=(*profile.notes, note))
    return replace(profile, notes=(*profile.notes, *bound.notes))


def on_this_machine(profile: Profile) -> Profile:
    # Imported here, because describing this machine takes as long as counting a small model.
    from pytest_modelperf.profiler.machine.describe import describe_machine

    return replace(profile, machine=describe_machine())


def model_facts(
    file: ModelFile, *, reads_all: bool = False, tell: Tell = lambda _: None
) -> ModelFacts:
    """Return the facts of a model's files. Large ones are hashed only if they are read in full."""
    total = size_on_disk(file)
    is_hashed = reads_all or (total is not None and total <= MAX_HASHED_BYTES)
    return ModelFacts(
        name=file.name if file.path is None else file.path.name,
        path=None if file.path is None else str(file.path),
        sha256=file.sha256(tell) if is_hashed else None,
        size_bytes=file.size_bytes,
        opsets={e.domain or "ai.onnx": e.version for e in file.proto.opset_import},
        producer=file.producer,
        total_bytes=total,
    )


def size_on_disk(file: ModelFile) -> int | None:
    """Return the size of all files of a model, or None if external data is missing."""
    try:
        return file.total_bytes
    except ModelError:
        # The graph can be counted without it, and an engine reports what is missing.
        return None
