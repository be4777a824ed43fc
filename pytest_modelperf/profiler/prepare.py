"""Read a model, bind it to the sizes of a case, and prepare it to run.

A `Model` is bound and counted, but not yet run or written. A `PreparedModel` is
made once and has all that a run needs: later steps read its fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import needs_copy
from pytest_modelperf.graph.deciding_inputs import find_chance
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, external_files, open_model
from pytest_modelperf.graph.observed import complete_model, needs_observation
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import describe_given
from pytest_modelperf.profiler.inputs.made import Feed, make_inputs
from pytest_modelperf.profiler.inputs.mixture import (
    PhaseGiven,
    StepFeeds,
    describe_mixture,
    divide_given,
    make_steps,
    mix_steps,
)
from pytest_modelperf.profiler.records import Case, StoredInputs
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    bind_members,
    count_bound,
    profile_bound,
    size_on_disk,
    with_given,
    with_members,
)
from pytest_modelperf.profiler.sampling.setup import Setup


class Model(Struct, frozen=True, dict=True):
    """A model at one set of dimensions, also bound to each member of a workload, and its counts."""

    file: ModelFile
    binding: Binding
    request: ProfileRequest
    extensions: Extensions
    bound: BoundModel
    static: StaticProfile
    members: tuple[BoundModel, ...] = ()

    @classmethod
    def load(cls, source: ModelSource, request: ProfileRequest, extensions: Extensions) -> Model:
        file = open_model(source)
        return Model.bind(file, request.bindings_of(file)[0], request, extensions)

    @classmethod
    def of_request(
        cls, file: ModelFile, request: ProfileRequest, extensions: Extensions
    ) -> tuple[Model, ...]:
        bindings = request.bindings_of(file)
        return tuple(Model.bind(file, binding, request, extensions) for binding in bindings)

    @classmethod
    def bind(
        cls, file: ModelFile, binding: Binding, request: ProfileRequest, extensions: Extensions
    ) -> Model:
        return cls.bind_whole(file, with_given(binding, request, file), request, extensions)

    @classmethod
    def bind_whole(
        cls, file: ModelFile, binding: Binding, request: ProfileRequest, extensions: Extensions
    ) -> Model:
        """Bind a model to a binding of another model that already has the given inputs."""
        bound = load_model(file, binding, extensions.operators.shape_rules)
        static = profile_bound(bound, extensions.operators, sparsity=request.sparsity)
        members = bind_members(file, binding, extensions.operators)
        static = with_members(static, members, request.mixture, extensions.operators)
        return Model(file, binding, request, extensions, bound, static, members)

    @cached_property
    def given_inputs(self) -> StoredInputs:
        """The inputs that the user gave. Two runs are the same only if these inputs are equal."""
        mixture, seed = self.request.mixture, self.request.seed
        if mixture is None:
            return describe_given(self.binding.inputs, self.given_feeds.steps, seed)
        specs = [member.inputs for member in self.binding.members]
        return describe_mixture(mixture, specs, self.given_of_members, seed)

    @cached_property
    def given_feeds(self) -> PhaseGiven:
        """The user's inputs of the inference that is repeated, and of each generation step."""
        given, bound = self.request.given, self.bound
        if given is None:
            return PhaseGiven({}, {})
        if bound.phase is not None:
            return divide_given(given, bound, bound.phase, self.file.name)
        feeds = given.feeds(bound.graph, bound.inputs, self.file.name)
        return PhaseGiven(feeds, feeds)

    @cached_property
    def given_of_members(self) -> tuple[Mapping[str, Feed], ...]:
        """The user's inputs for each member of a workload."""
        if self.request.mixture is None:
            return ()
        pairs = zip(self.request.mixture.members, self.members, strict=True)
        return tuple(
            {} if own.given is None else own.given.feeds(bound.graph, bound.inputs, self.file.name)
            for own, bound in pairs
        )

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        return self.request.varying(self.binding)

    def case(self, cores: int) -> Case:
        return self.request.case(self.binding, self.bound.inputs.batch_size, cores)


class PreparedModel(Model, frozen=True, kw_only=True):
    """A model with all that its runs need.

    `given` describes the inputs that the user gave. `feeds` are the inputs of the inference that is
    repeated, and `steps` those of a generation or of a workload. `beside` has the files of external
    data by their names in the model, and `size_bytes` is the size of all files, or None if one is
    missing. `runs_as_copy` means that an engine gets a copy that is written for it, and
    `needs_names` means that its nodes lack unique names. `is_open` means that only a run shows
    all shapes.
    """

    given: StoredInputs
    feeds: Mapping[str, Feed]
    steps: StepFeeds | None
    beside: Mapping[str, Path]
    size_bytes: int | None
    runs_as_copy: bool
    needs_names: bool
    is_open: bool

    @property
    def pass_inferences(self) -> int:
        """The inferences of one pass of a workload, or 1 for a plain case."""
        return 1 if self.request.mixture is None else self.request.mixture.facts.inferences


def prepare(model: Model) -> PreparedModel:
    """Make the inputs of a model, and check the files that an engine opens.

    Raise ChangedModelError if a file changed since it was used, ModelError if one is missing or
    must not be read, BindingError if a given input does not fit.
    """
    model.file.require_unchanged()
    bound, seed, name = model.bound, model.request.seed, model.file.name
    external = external_files(model.file)
    runs_as_copy = model.file.path is None or bound.inputs.rebound
    given = model.given_feeds
    steps = None
    if bound.phase is not None:
        steps = make_steps(bound, bound.phase, seed, given.steps, name)
    elif model.request.mixture is not None:
        feeds = [
            make_inputs(each.graph, each.inputs, seed, own, name)
            for each, own in zip(model.members, model.given_of_members, strict=True)
        ]
        steps = mix_steps(feeds, model.request.mixture)
    return PreparedModel(
        **asdict(model),
        given=model.given_inputs,
        feeds=make_inputs(bound.graph, bound.inputs, seed, given.still, name),
        steps=steps,
        beside=external,
        size_bytes=size_on_disk(model.file),
        runs_as_copy=runs_as_copy,
        needs_names=not runs_as_copy and needs_copy(bound),
        is_open=needs_observation(bound.graph),
    )


def complete(model: PreparedModel, observed: Sequence[Mapping[str, Any]]) -> PreparedModel:
    alone, chance = model.static, find_chance(model.bound.graph)
    bound = complete_model(model.bound, observed)
    completed = count_bound(bound, model.extensions.operators)
    if model.request.sparsity:
        from pytest_modelperf.profiler.counting.sparsity import add_sparsity

        completed = add_sparsity(completed, bound, alone)
    notes = completed.notes
    if chance is not None:
        notes = (*notes, f"{chance} decides how much is computed: the next run may compute more")
    static = replace(
        completed,
        # The model stores the weights of a branch even if the branch does not run.
        params=alone.params,
        weight_bytes=alone.weight_bytes,
        notes=notes,
        generation=alone.generation,
        members=alone.members,
        graph_alone=alone,
        chance=chance,
    )
    return replace(model, bound=bound, static=static, is_open=False)


ModelT_co = TypeVar("ModelT_co", bound=Model, covariant=True)


class PairOf(Struct, Generic[ModelT_co], frozen=True):
    """Two models at one set of dimensions, and the setup of each."""

    before: ModelT_co
    after: ModelT_co
    before_setup: Setup
    after_setup: Setup

    @property
    def shares_a_worker(self) -> bool:
        return self.before_setup == self.after_setup


Pair: TypeAlias = PairOf[PreparedModel]


def prepare_pair(pair: PairOf[Model]) -> Pair:
    """Prepare both models of a pair. A model that is on both sides is prepared once."""
    after = prepare(pair.after)
    before = after if pair.before is pair.after else prepare(pair.before)
    return Pair(before, after, pair.before_setup, pair.after_setup)
