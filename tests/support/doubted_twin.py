"""A recording whose twin was shown to be slower than its model, so that stored times decide."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.baselines.records import BaselineRecording, Fidelity

SLOWER = Fidelity(
    ratio=1.03,
    interval=(1.025, 1.035),
    rounds=9,
    is_trusted=False,
    has_same_plan=False,
    reason="the twin runs otherwise",
)


def doubted(recording: BaselineRecording) -> BaselineRecording:
    """The recording of one case with a twin that is not trusted."""
    (case,) = recording.cases
    return replace(recording, cases=(replace(case, fidelity=SLOWER),))
