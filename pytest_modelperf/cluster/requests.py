"""A request as JSON, of one case or of all: what to profile, the setup, and arrays."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.phases import Generation, Phase
from pytest_modelperf.profiler.dim_sizes import PairedSizes
from pytest_modelperf.profiler.given_inputs import GivenInputs
from pytest_modelperf.profiler.hookspecs import (
    Extensions,
    collect_extensions,
    import_plugin,
    make_plugin_manager,
)
from pytest_modelperf.profiler.number_formats import STORED_AS, name_of
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.rig import Setup
from pytest_modelperf.profiler.sampling_policy import SamplingPolicy


class CaseRequest(Struct, frozen=True, kw_only=True):
    """A `ProfileRequest` of one case. `given` has arrays by name, as a numpy archive in base64."""

    batch_size: int | None
    cores: int
    dims: Mapping[str, int] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    sparsity: bool = False
    seed: int = 0
    given: str | None = None
    given_source: str = ""
    generation: Generation | None = None
    phase: Phase | None = None

    def to_request(self) -> ProfileRequest:
        return ProfileRequest(
            batch_sizes=(self.batch_size,),
            cores=(self.cores,),
            dims={name: (size,) for name, size in self.dims.items()},
            inputs=self.inputs,
            sparsity=self.sparsity,
            given=None if self.given is None else _read_arrays(self.given, self.given_source),
            seed=self.seed,
            named=self.named,
            generations=() if self.generation is None else (self.generation,),
            phases=tuple(Phase) if self.phase is None else (self.phase,),
        )


class WholeRequest(Struct, frozen=True, kw_only=True):
    """A `ProfileRequest` of all cases, for a job that has them run in turn.

    `first` has what is the same for each of them. Paired sizes go together, one from each name.
    """

    batch_sizes: tuple[int | None, ...]
    cores: tuple[int, ...]
    dims: Mapping[str, tuple[int, ...]]
    has_paired_sizes: bool
    named: tuple[str, ...]
    first: CaseRequest
    generations: tuple[Generation, ...] = ()
    phases: tuple[Phase, ...] = tuple(Phase)

    @classmethod
    def of(cls, request: ProfileRequest) -> WholeRequest:
        return cls(
            batch_sizes=request.batch_sizes,
            cores=request.cores,
            dims=request.dims,
            has_paired_sizes=isinstance(request.dims, PairedSizes),
            named=request.named,
            first=split_request(request)[0],
            generations=request.generations,
            phases=request.phases,
        )

    def to_request(self) -> ProfileRequest:
        return replace(
            self.first.to_request(),
            batch_sizes=self.batch_sizes,
            cores=self.cores,
            dims=PairedSizes(self.dims) if self.has_paired_sizes else self.dims,
            named=self.named,
            generations=self.generations,
            phases=self.phases,
        )


class SetupRequest(Struct, frozen=True, kw_only=True):
    """A `Setup`, whose engine is named: the machine finds it, with the same plugins."""

    engine: str
    options: Mapping[str, str]
    spec: str
    policy: SamplingPolicy
    limit_s: float
    stretch_seconds: float | None

    @classmethod
    def of(cls, setup: Setup) -> SetupRequest:
        return cls(
            engine=setup.engine.name,
            options=setup.options,
            spec=setup.spec,
            policy=setup.policy,
            limit_s=setup.limit_s,
            stretch_seconds=setup.stretch_seconds,
        )

    def to_setup(self, extensions: Extensions) -> Setup:
        return Setup(
            engine=extensions.engines.find(self.engine),
            options=self.options,
            spec=self.spec,
            policy=self.policy,
            limit_s=self.limit_s,
            stretch_seconds=self.stretch_seconds,
        )


def split_request(request: ProfileRequest) -> tuple[CaseRequest, ...]:
    """One request for each case of a request, in the order of its profile."""
    given = None if request.given is None else _write_arrays(request.given)
    return tuple(
        CaseRequest(
            batch_size=binding.batch_size,
            cores=cores,
            dims=binding.dims,
            named=tuple(name for name, _ in request.varying(binding)),
            inputs=request.inputs,
            sparsity=request.sparsity,
            seed=request.seed,
            given=given,
            given_source="" if request.given is None else request.given.source,
            generation=_generation_of(binding),
            phase=None if binding.phase is None else binding.phase.phase,
        )
        for binding in request.bindings()
        for cores in request.cores
    )


def _generation_of(binding: Binding) -> Generation | None:
    phase = binding.phase
    return None if phase is None else Generation(phase.prompt, phase.generate, binding.state)


def load_plugins(names: Sequence[str]) -> Extensions:
    """The extensions of a machine, with the modules of these names, which it must have too."""
    manager = make_plugin_manager()
    for name in names:
        import_plugin(manager, name)
    return collect_extensions(manager)


def _write_arrays(given: GivenInputs) -> str:
    if given.function is not None:
        raise UsageError(
            f"{given.source} makes inputs here, and a cluster takes arrays: save what it returns "
            "with numpy.savez and give the .npz file."
        )
    # An archive has no name for bfloat16 and the like, nor for texts of any length.
    arrays = {
        name: array.view(STORED_AS[name_of(array.dtype)])
        if name_of(array.dtype) in STORED_AS
        else array.astype(str)
        if array.dtype == object
        else array
        for name, array in given.arrays.items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # a keyword of its own may be meant
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _read_arrays(text: str, source: str) -> GivenInputs:
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as archive:
        return GivenInputs(source, dict(archive.items()))
