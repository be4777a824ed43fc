"""Changes since a program was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from onnx import TensorProto

from pytest_modelperf.baselines.program import ProgramSources
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.programs.changes import changes_since
from tests.support.small_models import ones, parse
from tests.support.stored_programs import seen_model, seen_of, stored_program

FILES = {"reader.py": b"def read():\n    return 1\n", "data/words.txt": b"a\n"}
MODEL = "g (float[2,16] x) => (float[2,8] y) { y = MatMul(x, w) }"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for place, content in FILES.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(content)
    return tmp_path


def changes(seen: ProgramSources, top: Path, versions: dict[str, str] | None = None) -> list[str]:
    return [
        *changes_since(stored_program(seen), top, version_of=(versions or {}).get, python="3.11.9")
    ]


def test_the_same_files_are_unchanged(top: Path) -> None:
    assert changes(seen_of(FILES), top) == []


def test_each_file_is_named(top: Path) -> None:
    (top / "reader.py").write_bytes(b"def read():\n    return 2\n")
    (top / "data/words.txt").unlink()
    assert changes(seen_of(FILES), top) == ["reader.py changed", "words.txt is gone"]


def test_files_of_one_name_have_their_folders(top: Path) -> None:
    assert changes(seen_of({**FILES, "a/reader.py": b"a\n"}), top) == ["a/reader.py is gone"]


def test_a_folder_in_place_of_a_file_is_a_change(top: Path) -> None:
    (top / "reader.py").unlink()
    (top / "reader.py").mkdir()
    (found,) = changes(seen_of(FILES), top)
    assert found.startswith("reader.py ")


def test_other_ends_of_lines_are_not_a_change(top: Path) -> None:
    (top / "reader.py").write_bytes(FILES["reader.py"].replace(b"\n", b"\r\n"))
    assert changes(seen_of(FILES), top) == []
    windows = {"reader.py": FILES["reader.py"].replace(b"\n", b"\r\n")}
    (top / "reader.py").write_bytes(FILES["reader.py"])
    assert changes(seen_of(windows), top) == []


def test_binary_content_has_no_lines(top: Path) -> None:
    (top / "data/words.txt").write_bytes(b"\0\r\n")
    assert changes(seen_of({"data/words.txt": b"\0\n"}), top) == ["words.txt changed"]


def test_versions_are_compared(top: Path) -> None:
    seen = seen_of(FILES, distributions={"magika": "1.0.2", "numpy": "2.1.0", "gone": "1"})
    now = {"magika": "1.0.3", "numpy": "2.1.0"}
    assert changes(seen, top, now) == [
        "magika 1.0.2 -> 1.0.3",
        "gone 1 is no longer installed",
    ]


def test_the_version_of_python_is_compared(top: Path) -> None:
    found = changes_since(stored_program(seen_of(FILES)), top, python="3.12.1")
    assert found == ("Python 3.11.9 -> 3.12.1",)


def test_models_outside_of_the_project_are_compared(top: Path, tmp_path: Path) -> None:
    path = tmp_path / "rec.onnx"
    path.write_bytes(b"one")
    seen = seen_of(FILES, models=(seen_model("rec.onnx", path.as_posix(), b"one"),))
    assert changes(seen, top) == []
    path.write_bytes(b"two")
    assert changes(seen, top) == ["rec.onnx changed"]
    path.unlink()
    assert changes(seen, top) == [f"rec.onnx is gone: it was {path.as_posix()}"]


def test_a_model_in_the_home_folder_is_compared_for_every_user(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    seen = seen_of(FILES, models=(seen_model("rec.onnx", "~/rec.onnx", b"one"),))
    assert changes(seen, top) == ["rec.onnx is gone: it was ~/rec.onnx"]
    (tmp_path / "rec.onnx").write_bytes(b"one")
    assert changes(seen, top) == []
    (tmp_path / "rec.onnx").write_bytes(b"two")
    assert changes(seen, top) == ["rec.onnx changed"]


def test_external_data_belongs_to_its_model(top: Path) -> None:
    proto = parse(MODEL, weights={"w": ones(16, 8)})
    weight = proto.graph.initializer[0]
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    (top / "m.onnx").write_bytes(proto.SerializeToString())
    (top / "w.bin").write_bytes(data)
    model = replace(seen_model("m.onnx", "m.onnx", b""), sha256=open_model(top / "m.onnx").sha256())
    seen = seen_of(FILES, models=(model,))
    assert changes(seen, top) == []
    (top / "w.bin").write_bytes(b"\0" * len(data))
    assert changes(seen, top) == ["m.onnx changed"]
