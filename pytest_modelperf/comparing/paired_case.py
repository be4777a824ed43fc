"""One case of two models that are compared, with all that judges it."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredCase, StoredLatency
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Pair


class PairedCase(Struct, frozen=True):
    """A case of a pair: the side before, the gate that judges it, and its place among all cases."""

    pair: Pair
    before: Side
    gate: Gate
    place: CasePlace

    @property
    def id(self) -> str:
        return self.place.case.id

    @property
    def stored(self) -> StoredCase | None:
        """The case as the baseline stores it, if there is one that does."""
        return None if self.before.baseline is None else self.before.baseline.case(self.id)

    @property
    def recorded(self) -> StoredLatency | None:
        """The latency that was recorded on this kind of machine."""
        return None if self.before.machine is None else self.before.machine.cases.get(self.id)
