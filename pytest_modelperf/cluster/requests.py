"""A request as it is sent to a machine: of one case, or of all cases, which run there in turn."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.phases import Generation, Phase
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes
from pytest_modelperf.profiler.request import ProfileRequest


class WholeRequest(Struct, frozen=True):
    """A request of all cases. JSON has no word for sizes that go together, so a field says it."""

    request: ProfileRequest
    has_paired_sizes: bool

    @classmethod
    def of(cls, request: ProfileRequest) -> WholeRequest:
        _require_arrays(request)
        return cls(request, isinstance(request.dims, PairedSizes))

    def to_request(self) -> ProfileRequest:
        if not self.has_paired_sizes:
            return self.request
        return replace(self.request, dims=PairedSizes(self.request.dims))


def split_request(request: ProfileRequest) -> tuple[ProfileRequest, ...]:
    """One request for each case of a request, in the order of its profile."""
    _require_arrays(request)
    return tuple(
        replace(
            request,
            batch_sizes=(binding.batch_size,),
            cores=(cores,),
            # A workload gives further dimensions their sizes, member by member.
            dims={name: (binding.dims[name],) for name in request.dims},
            named=tuple(name for name, _ in request.varying(binding)),
            **_phase_of(binding),
        )
        for binding in request.bindings()
        for cores in request.cores
    )


def _phase_of(binding: Binding) -> dict[str, object]:
    """The fields of a request that ask for the phase of a binding alone."""
    phase = binding.phase
    if phase is None:
        return {"generations": (), "phases": tuple(Phase)}
    generation = Generation(phase.prompt, phase.generate, binding.state)
    return {"generations": (generation,), "phases": (phase.phase,)}


def _require_arrays(request: ProfileRequest) -> None:
    given = request.given
    if given is not None and given.function is not None:
        raise UsageError(
            f"{given.source} makes inputs here, and a cluster takes arrays: save what it returns "
            "with numpy.savez and give the .npz file."
        )
