"""The committed baselines of the light models still hold: any change of a count shows in review.

`python -m tests.baselines.test_committed` writes them again.
"""

from __future__ import annotations

import datetime as dt

import pytest

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.document import store_case, write_model
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.profiler.machine.describe import find_versions
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from tests.support.checkout import ROOT
from tests.support.facts import make_provenance
from tests.support.known import known
from tests.support.light_models import LIGHT_MODELS, light_model

STORE = BaselineStore(ROOT / "baselines")
# The packages that a count depends on.
PACKAGES = ("pytest-modelperf", "onnx")


def current(name: str) -> BaselineRecording:
    """Return what is stored of a model: the totals and the layer types of two batch sizes."""
    path = light_model(name)
    profile = profile_model(path, ProfileRequest(batch_sizes=(1, 8)))
    structure = digest_structure(open_model(path))
    today = dt.datetime.now(dt.timezone.utc).date()
    provenance = make_provenance(date=today, packages=find_versions(PACKAGES))
    return BaselineRecording(
        name=f"light_{name}",
        model=profile.model,
        cases=tuple(
            store_case(case, profile.model, provenance, structure) for case in profile.cases
        ),
    )


def write(name: str) -> None:
    recording = current(name)
    STORE.apply(plan_update(STORE.read(recording.name), recording))


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_counts_are_those_of_the_baseline(name: str) -> None:
    recording = current(name)
    stored = known(STORE.read(recording.name))
    if recording.model.sha256 != stored.model.model.sha256:
        pytest.skip("the installed onnx package ships another version of this model")
    assert plan_update(stored, recording).changes == ()


def test_every_committed_file_is_as_the_store_would_write_it() -> None:
    """Otherwise the next change of one case would show in the diff of all of them."""
    for name in STORE.names():
        stored = known(STORE.read(name))
        path = STORE.root / name / "model.json"
        assert path.read_bytes() == write_model(stored.model), name


if __name__ == "__main__":
    for model in LIGHT_MODELS:
        write(model)
