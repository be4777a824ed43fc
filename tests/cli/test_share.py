"""`modelperf share` on the real engine: the folder runs, and reveals no more than it may."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from pytest_modelperf.graph.weights.program import draw_input, draw_weights
from tests.support.command import Result, refusal, run
from tests.support.onnx_text import parse_model
from tests.support.shares import make_likening, make_share
from tests.support.small_models import parse

NET = """
    sorting_hat (float[crowd,4,16,16] photograph) => (float[crowd,10] verdict_of_hat) {
        [stem_of_hat] c = Conv<pads=[1,1,1,1]>(photograph, stem_weight)
        [stem_relu] r = Relu(c)
        [pooling_of_hat] p = GlobalAveragePool(r)
        [flattened] f = Flatten(p)
        [head_of_hat] verdict_of_hat = MatMul(f, head_weight)
    }
"""
NAMES = (
    "sorting_hat", "crowd", "photograph", "verdict_of_hat", "stem_of_hat", "stem_weight",
    "stem_relu", "pooling_of_hat", "flattened", "head_of_hat", "head_weight", "hogwarts",
)  # fmt: skip


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    random = np.random.default_rng(0)
    weights = {
        "stem_weight": random.standard_normal((32, 4, 3, 3)).astype(np.float32) / 6,
        "head_weight": random.standard_normal((32, 10)).astype(np.float32) / 6,
    }
    path = tmp_path_factory.mktemp("models") / "hogwarts.onnx"
    path.write_bytes(parse(NET, opset=17, weights=weights).SerializeToString())
    return str(path)


def _share(model: str, target: Path, *options: str) -> Result:
    """Share it; a short run on a busy machine cannot decide whether times are alike."""
    done = run("share", model, "--output", str(target), "--max-seconds", "0.3", *options)
    assert done.exit_code in {0, 1, 3}, done.err
    return done


class _Ran(NamedTuple):
    """The inputs that the program of a folder draws, and the outputs of the model."""

    feeds: Mapping[str, Any]
    outputs: Sequence[Any]


def _run(folder: Path) -> _Ran:
    (model,) = json.loads((folder / "run.json").read_text())["models"]
    draw_weights(folder, model)
    session = ort.InferenceSession(str(folder / model["file"]))
    feeds = {note["name"]: draw_input(note) for note in model["inputs"]}
    return _Ran(feeds, session.run(None, feeds))


def test_the_folder_runs_and_says_what_was_measured(net: str, tmp_path: Path) -> None:
    done = _share(net, tmp_path / "out", "--batch", "3", "--cores", "1")
    assert "The engine makes the same plan of both" in done.out
    document = json.loads((tmp_path / "out" / "share.json").read_text())
    assert (document["model"], document["batch_size"]) == ("hogwarts.onnx", 3)
    assert document["likening"]["has_same_plan"] is True
    (output,) = _run(tmp_path / "out").outputs
    assert output.shape == (3, 10)
    assert onnx.load(tmp_path / "out" / "model.onnx").graph.input[0].name == "photograph"


def test_an_anonymous_folder_has_none_of_the_names(net: str, tmp_path: Path) -> None:
    done = _share(net, tmp_path / "out", "--anonymous", "--dim", "crowd=2")
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for name, data in files.items():
        assert [each for each in NAMES if each.encode() in data] == [], name
    assert "same plan of both" in done.out
    (output,) = _run(tmp_path / "out").outputs
    assert output.shape == (2, 10)


def test_an_archive_can_be_attached(net: str, tmp_path: Path) -> None:
    _share(net, tmp_path / "issue.zip")
    with zipfile.ZipFile(tmp_path / "issue.zip") as archive:
        archive.extractall(tmp_path)
    assert len(_run(tmp_path / "issue").outputs) == 1


def test_values_of_given_inputs_are_not_shared(net: str, tmp_path: Path) -> None:
    given = np.random.default_rng(1).normal(7, 2, (5, 4, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "given.npz", photograph=given)
    _share(net, tmp_path / "out", "--input-file", str(tmp_path / "given.npz"))
    drawn = _run(tmp_path / "out").feeds["photograph"]
    assert drawn.shape == given.shape
    assert drawn.mean() == pytest.approx(7, abs=0.5)
    # Some are equal by chance.
    assert np.isin(given, drawn).mean() < 1e-3


def test_a_fixed_batch_is_changed_in_the_shared_model_too(tmp_path: Path) -> None:
    model = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y) '
        "{ y = Softmax (x) }"
    )
    onnx.save(model, tmp_path / "fixed.onnx")
    _share(str(tmp_path / "fixed.onnx"), tmp_path / "out", "--batch", "6")
    (output,) = _run(tmp_path / "out").outputs
    assert output.shape == (6, 4)


def test_an_existing_target_is_refused_before_anything_is_measured(
    net: str, tmp_path: Path
) -> None:
    assert "exists already: give --output another name, or --force" in refusal(
        "share", net, "--output", str(tmp_path)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch", "1,2"), "a model is shared at one size"),
        (("--engine", "openvino"), "runs onnxruntime, not openvino"),
        (("--engine-option", "custom_ops=/opt/ops.so"), "names something of this machine"),
    ],
)
def test_options_that_a_folder_cannot_store_are_refused(
    net: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refusal("share", net, "--output", str(tmp_path / "out"), *options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("low", "high", "has_same_plan", "code"),
    [(0.99, 1.01, True, 0), (0.99, 1.01, False, 1), (1.05, 1.09, True, 1), (0.9, 1.1, True, 3)],
)
def test_the_exit_code_says_whether_it_runs_alike_and_the_folder_is_written(
    low: float,
    high: float,
    has_same_plan: bool,  # noqa: FBT001  # a parameter of pytest
    code: int,
    tmp_path: Path,
) -> None:
    likening = make_likening(low, high, has_same_plan=has_same_plan, difference="it runs less")
    share = make_share(likening=likening)
    done = run(
        "share", "any.onnx", "--output", str(tmp_path / "out"), "--json", "-",
        core=lambda *_, **__: share,
    )  # fmt: skip
    assert done.exit_code == code
    assert (tmp_path / "out" / "README.md").exists()
    assert json.loads(done.out)["weight_bytes"] == share.weight_bytes
    assert bool(done.err) == (code != 0)


def test_the_default_name_of_an_anonymous_folder_reveals_nothing(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--anonymous",)):
        run("share", net, *options, core=lambda *_, **__: make_share())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hogwarts-shared", "shared-model"]
