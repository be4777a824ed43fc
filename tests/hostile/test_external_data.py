"""Data in another file is read from the folder of the model, and no other.

By every command that reads weights, and before an engine is given the path: it would read whatever
the model names. Single locations are tested in `tests/graph/test_model_file.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.model_file import external_files, open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import read_twin
from pytest_modelperf.profiler.worker.client import ProcessWorker
from tests.support.command import run
from tests.support.small_models import ones, parse

WEIGHT = np.random.RandomState(0).standard_normal((64, 32)).astype(np.float32)
OUTSIDE = "outside.bin"
# Paths in a model, by what is wrong with them; each file is in its folder, or outside.
PLACES = {
    "above": f"../{OUTSIDE}",
    "absolute": "",  # that file, which is known when the test runs
    "through a link": "link.bin",
    "a device": "zero.bin",
    "a pipe": "pipe.bin",
    "a folder": "folder",
    "beyond the end": "inside.bin",
    "nothing": "missing.bin",
}
READING: dict[str, tuple[str, ...]] = {
    "profile": ("profile", "{0}", "--max-seconds", "0.05"),
    "static": ("profile", "{0}", "--static"),
    "static comparison": ("compare", "{1}", "{0}", "--static"),
    "sparsity": ("profile", "{0}", "--static", "--sparsity"),
    "compare": ("compare", "{1}", "{0}", "--max-seconds", "0.05"),
    "before": ("compare", "{0}", "{1}", "--max-seconds", "0.05"),
    "sweep": ("sweep", "{0}", "--batch", "1", "--max-seconds", "0.05"),
    "prune": ("whatif", "{0}", "--prune", "0.5", "--max-seconds", "0.05"),
    "channels": ("whatif", "{0}", "--prune-channels", "0.5", "--max-seconds", "0.05"),
    "quantize": ("whatif", "{0}", "--quantize", "int8", "--max-seconds", "0.05"),
    "shapes": ("shapes", "{0}", "-o", "out.onnx"),
    "doctor": ("doctor", "{0}", "--max-seconds", "0.05"),
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of models with all files that they name, and a file that none of them names."""
    above = tmp_path_factory.mktemp("above")
    path = above / "models"
    path.mkdir()
    (above / OUTSIDE).write_bytes(WEIGHT.tobytes())
    (path / "link.bin").symlink_to(above / OUTSIDE)
    (path / "zero.bin").symlink_to("/dev/zero")
    os.mkfifo(path / "pipe.bin")
    (path / "folder").mkdir()
    (path / "inside.bin").write_bytes(WEIGHT.tobytes())
    for what, place in PLACES.items():
        more = {"offset": "8", "length": str(WEIGHT.nbytes)} if what == "beyond the end" else {}
        save(path / f"{what}.onnx", place or str(above / OUTSIDE), **more)
    save(path / "good.onnx", "inside.bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


def save(path: Path, location: str, **entries: str) -> None:
    model = parse("g (float[1,64] x) => (float[1,32] y) { y = MatMul (x, w) }")
    weight = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[64, 32])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


@pytest.fixture
def no_worker_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine must not get the path at all, whatever it would do with it."""

    def send(_: ProcessWorker, path: Path, *__: object) -> str:
        raise AssertionError(f"{path} was given to an engine")

    monkeypatch.setattr(ProcessWorker, "send_model", send)


@pytest.mark.usefixtures("no_worker_sees_it")
@pytest.mark.parametrize("what", PLACES)
def test_no_engine_gets_a_model_whose_data_is_outside_its_folder(what: str) -> None:
    result = run("profile", f"{what}.onnx", "--max-seconds", "0.05")
    assert result.exit_code == 2
    assert result.err.startswith("Error: the ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("command", READING)
def test_every_command_refuses_it(command: str) -> None:
    result = run(*(part.format("above.onnx", "good.onnx") for part in READING[command]))
    assert result.exit_code in {2, 3}
    assert "outside" in result.out + result.err
    assert not Path("out.onnx").exists()


def test_a_folder_of_links_has_the_data_of_their_targets(tmp_path: Path) -> None:
    """The cache of a download has such links."""
    kept, shown = tmp_path / "blobs", tmp_path / "snapshot"
    kept.mkdir()
    shown.mkdir()
    save(kept / "1a2b", "data/w.bin")
    (kept / "3c4d").write_bytes(WEIGHT.tobytes())
    (shown / "data").mkdir()
    (shown / "model.onnx").symlink_to("../blobs/1a2b")
    (shown / "data" / "w.bin").symlink_to("../../blobs/3c4d")

    assert external_files(open_model(shown / "model.onnx")) == {"data/w.bin": kept / "3c4d"}
    assert run("profile", str(shown / "model.onnx"), "--max-seconds", "0.05").exit_code == 0
    # Copied files are where the copy looks for them.
    (tmp_path / "out").mkdir()
    copy = tmp_path / "out" / "m.onnx"
    assert run("shapes", str(shown / "model.onnx"), "-o", str(copy)).exit_code == 0
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx.load(str(copy)).graph.initializer[0]), WEIGHT
    )


@pytest.mark.parametrize(
    "place", ["folder/../../outside.bin", "folder/../..//outside.bin", "/", "."]
)
def test_no_way_around_leads_out(place: str) -> None:
    save(Path("around.onnx"), place)
    with pytest.raises(ModelError, match="outside"):
        external_files(open_model("around.onnx"))


def test_a_way_through_a_link_names_no_place_outside_of_a_copy(tmp_path: Path) -> None:
    """`link/../w.bin` is inside where the link leads, but a copy would be written above."""
    (tmp_path / "m" / "a" / "b").mkdir(parents=True)
    (tmp_path / "m" / "link").symlink_to("a/b")
    (tmp_path / "m" / "w.bin").write_bytes(WEIGHT.tobytes())
    save(tmp_path / "m" / "model.onnx", "link/../../w.bin")
    with pytest.raises(ModelError, match="outside"):
        external_files(open_model(tmp_path / "m" / "model.onnx"))


@pytest.mark.parametrize(
    "note", ["0:4611686018427387904", "0:8192|0:8192", "-9:-1|-9:-1", "5:4|4611686018427387904:0"]
)
def test_a_model_cannot_name_bytes_of_its_own_file(tmp_path: Path, note: str) -> None:
    """Our placeholders for skipped data are written into no model, and not believed of any."""
    path = tmp_path / "m.onnx"
    save(path, "")
    model = onnx.load(str(path), load_external_data=False)
    entries = model.graph.initializer[0].external_data
    del entries[:]
    entries.add(key="modelperf.bytes", value=note)
    path.write_bytes(model.SerializeToString())

    for command in ("sparsity", "shapes", "prune"):
        arguments = (part.format(path, "good.onnx") for part in READING[command])
        result = run(*arguments)
        assert result.exit_code in {2, 3}
        assert "points to ''" in result.out + result.err
    assert b"modelperf" not in Path("good.onnx").read_bytes()


def test_a_twin_with_contradictory_data_takes_no_memory(tmp_path: Path) -> None:
    """A tensor with data of its own and with a note, of which a reader may believe either."""
    path = tmp_path / "twin.onnx"
    model = parse("g (float[2] x) => (y) { y = Add (x, w) }", weights={"w": ones(2)})
    model.graph.initializer[0].external_data.add(key="modelperf.bytes", value="7:1048576")
    model.metadata_props.add(key="modelperf.twin", value='{"schema": 1}')
    path.write_bytes(model.SerializeToString())

    assert rebuild(read_twin(path), tmp_path / "m.onnx").stat().st_size < 1000
