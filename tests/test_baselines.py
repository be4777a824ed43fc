"""The committed baselines of the light models still hold: any change of a count shows in review.

`python -m tests.test_baselines` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_modelperf.serde import profile_to_json
from pytest_modelperf.session import ProfileRequest, profile_model
from tests.light_models import LIGHT_MODELS, light_model

BASELINES = Path(__file__).parent.parent / "baselines"


def current(name: str) -> dict[str, Any]:
    """What is kept of a model: the totals and the layer types of two batch sizes."""
    profile = profile_model(light_model(name), ProfileRequest(batch_sizes=(1, 8)))
    full: dict[str, Any] = dict(profile_to_json(profile))
    kept = ("batch_size", "id", "layer_types", "static")
    return {
        "schema": full["schema"],
        "model": {key: full["model"][key] for key in ("bytes", "name", "sha256")},
        "cases": [{key: case[key] for key in kept} for case in full["cases"]],
    }


def write(name: str) -> None:
    folder = BASELINES / f"light_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(current(name), indent=1, sort_keys=True) + "\n"
    (folder / "model.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_counts_are_those_of_the_baseline(name: str) -> None:
    stored = json.loads((BASELINES / f"light_{name}" / "model.json").read_text(encoding="utf-8"))
    found = current(name)
    if found["model"] != stored["model"]:
        pytest.skip("the installed onnx package ships another version of this model")
    assert found == stored


if __name__ == "__main__":
    for model in LIGHT_MODELS:
        write(model)
