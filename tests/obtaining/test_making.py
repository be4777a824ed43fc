"""A model is made once, and again when anything changes that it was made from."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import onnxruntime as ort
import pytest

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.obtaining.making import MadeModel, Making, write_as_onnx
from pytest_modelperf.obtaining.origins import ModelOrigin, OriginKind
from pytest_modelperf.profiler.request import profile_model
from tests.support.project import write_dense

EXPORT = '''\
"""Exports the model of the test, and counts how often it does."""
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

def encoder():
    runs = HERE / "runs.txt"
    with runs.open("a") as file:
        file.write("run ")
    return (HERE / "weights.bin").read_bytes()

def path():
    return HERE / "weights.bin"

def by_script():
    subprocess.run([sys.executable, "script.py"], cwd=HERE, check=True)
    return encoder()

closed = (lambda width: lambda: (encoder(), width)[0])(3)
broken = 3
'''
_SESSIONS = count()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose module `exporting` makes models."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "exporting.py").write_text(EXPORT, "utf-8")
    write_dense(root / "weights.bin")
    yield root
    sys.modules.pop("exporting", None)


def make(
    project: Path, name: str = "encoder", *, session: str | None = None, uses_kept: bool = True
) -> MadeModel:
    """Return the model of a new session, with its modules imported for the first time."""
    sys.modules.pop("exporting", None)
    importlib.invalidate_caches()
    making = Making(
        root=project,
        session=session or str(next(_SESSIONS)),
        folder=project.parent / "made",
        uses_kept=uses_kept,
    )
    return making.make(ModelOrigin(OriginKind.FUNCTION, f"exporting:{name}"), "encoder")


def runs(project: Path) -> int:
    return (project / "runs.txt").read_text("utf-8").count("run")


def test_an_unchanged_model_is_made_once_and_says_so_later(project: Path) -> None:
    first, second = make(project), make(project)
    assert runs(project) == 1
    assert (first.is_kept, second.is_kept) == (False, True)
    assert first.path == second.path
    assert open_model(second.path).name == "encoder.onnx"


def test_processes_of_one_session_share_a_model_that_is_not_an_old_one(project: Path) -> None:
    assert not make(project, session="one", uses_kept=False).is_kept
    assert not make(project, session="one", uses_kept=False).is_kept
    assert runs(project) == 1


def test_a_session_may_make_all_of_its_models_again(project: Path) -> None:
    make(project)
    assert not make(project, uses_kept=False).is_kept
    assert runs(project) == 2


@pytest.mark.parametrize("name", ["encoder", "path"])
def test_a_file_that_the_function_read_or_returned_makes_it_run_again(
    project: Path, name: str
) -> None:
    make(project, name)
    write_dense(project / "weights.bin", width=9)
    made = make(project, name)
    assert not made.is_kept
    assert made.path.read_bytes() == (project / "weights.bin").read_bytes()


def test_a_script_that_the_function_runs_makes_it_run_again(project: Path) -> None:
    script = project / "script.py"
    script.write_text("")
    assert not make(project, "by_script").is_kept
    assert make(project, "by_script").is_kept
    script.write_text("pass")
    assert not make(project, "by_script").is_kept


def test_the_code_of_the_project_makes_it_run_again(project: Path) -> None:
    make(project)
    (project / "exporting.py").write_text(f"{EXPORT}\n# edited\n", "utf-8")
    assert not make(project).is_kept
    assert runs(project) == 2


def test_a_file_that_was_deleted_makes_it_run_again(project: Path) -> None:
    made = make(project)
    made.path.unlink()
    assert not make(project).is_kept


def test_the_model_before_is_removed(project: Path) -> None:
    first = make(project)
    second = make(project, uses_kept=False)
    assert second.path.is_file()
    assert not first.path.exists()


def test_a_closure_is_never_kept(project: Path) -> None:
    make(project, "closed")
    assert not make(project, "closed").is_kept
    assert runs(project) == 2


def test_a_damaged_note_makes_it_run_again(project: Path) -> None:
    made = make(project)
    (made.path.parents[1] / "made-from.json").write_text("{", "utf-8")
    assert not make(project).is_kept


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exporting:encode", "there is no encode in exporting.* Did you mean 'encoder'?"),
        ("exporting:broken", "exporting:broken is not a function"),
        ("export:encoder", "there is no module export for export:encoder"),
    ],
)
def test_a_name_without_a_function_is_refused(project: Path, name: str, message: str) -> None:
    making = Making(root=project, session="one", folder=project.parent / "made")
    with pytest.raises(UsageError, match=message):
        making.make(ModelOrigin(OriginKind.FUNCTION, name), "encoder")


def test_an_error_of_the_function_is_raised_as_it_is(project: Path) -> None:
    (project / "weights.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"weights\.bin"):
        make(project)


def write_ort(source: Path, target: Path) -> Path:
    """The same model as the runtime converts it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return target


def test_the_graph_and_the_weights_are_those_of_the_file(tmp_path: Path) -> None:
    dense = write_dense(tmp_path / "dense.onnx", width=200)
    converted = write_ort(dense, tmp_path / "dense.ort")
    written = write_as_onnx(converted, tmp_path / "written")
    assert written == tmp_path / "written" / "dense.ort.onnx"
    before, after = (profile_model(each).cases[0].static for each in (dense, written))
    assert after is not None
    assert before is not None
    assert (after.macs, after.params) == (before.macs, before.params) == (600, 600)
    session = ort.InferenceSession(str(written), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["x"]


def test_a_file_that_the_runtime_cannot_read_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "broken.ort").write_bytes(b"broken")
    with pytest.raises(ModelError, match=r"broken\.ort cannot be read by ONNX Runtime: "):
        write_as_onnx(tmp_path / "broken.ort", tmp_path / "written")
