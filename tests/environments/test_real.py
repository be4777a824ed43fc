"""Environments from the package index: two versions of ONNX Runtime, and what runs in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_modelperf.environments.installing import find_installer
from pytest_modelperf.environments.store import list_environments, make_environment
from pytest_modelperf.errors import EnvironmentMakingError
from tests.support.command import run
from tests.support.installers import FakeInstaller
from tests.support.releases import RELEASES, use_releases
from tests.support.small_models import ones, parse

OLD, _, NEW = RELEASES


@pytest.fixture
def _cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments are found, and nothing can be made."""
    use_releases(monkeypatch, OLD, NEW)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "dense.onnx"
    text = "g (float[N,64] x) => (float[N,64] y) { [product] y = MatMul(x, w) }"
    path.write_bytes(parse(text, weights={"w": ones(64, 64)}).SerializeToString())
    return path


@pytest.mark.usefixtures("_cached")
@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_environment_has_the_version_that_was_asked_for(version: str) -> None:
    made = make_environment([f"onnxruntime=={version}"])
    code = "import numpy, onnxruntime; print(onnxruntime.__version__)"
    done = subprocess.run(
        [made.python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == made.packages["onnxruntime"] == version
    assert made.packages["numpy"]
    # Without this Python's own packages.
    assert "pytest" not in made.packages


@pytest.mark.usefixtures("_cached")
def test_a_model_is_profiled_with_another_version(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "profile.json"
    requirement = ("--requirement", f"onnxruntime=={OLD}")
    result = run("profile", str(model), *requirement, "--max-seconds", "0.2", "--json", str(target))
    assert result.exit_code == 0, result.err
    (case,) = json.loads(target.read_text())["cases"]
    assert (case["engine"]["name"], case["engine"]["version"]) == ("onnxruntime", OLD)


@pytest.mark.slow
@pytest.mark.usefixtures("_cached")
def test_two_versions_run_as_a_duet(model: Path) -> None:
    result = run(
        "compare", str(model), str(model), "--max-seconds", "0.5", "--tolerance", "900 %",
        "--requirement-a", f"onnxruntime=={OLD}", "--requirement-b", f"onnxruntime=={NEW}",
    )  # fmt: skip
    assert result.exit_code == 0, result.err
    assert f"on onnxruntime {OLD}, onnxruntime {NEW}" in result.out


@pytest.mark.slow
def test_a_version_that_does_not_exist_has_the_message_of_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_releases(monkeypatch, OLD)
    with pytest.raises(EnvironmentMakingError) as raised:
        make_environment(["onnxruntime==0.0.1"], folder=tmp_path)
    message = str(raised.value)
    assert f"{find_installer().name} failed:" in message
    assert "onnxruntime==0.0.1" in message.partition("failed:")[2]
    assert not list_environments(tmp_path).environments


KILLED = """
import sys
from pathlib import Path
from pytest_modelperf.environments.store import make_environment
from tests.support.installers import FakeInstaller
from tests.support.releases import RELEASES, use_releases

installer = FakeInstaller()
# Half of it is installed, and the other half never comes.
installer.interrupt = lambda folder: print(folder, flush=True) or sys.stdin.read()
make_environment(["engine==1.0"], installer=installer, folder=Path(sys.argv[1]))
"""


def test_a_killed_install_leaves_nothing_that_is_taken_for_an_environment(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        unfinished = Path(process.stdout.readline().strip())
        assert (unfinished / "bin" / "python").exists()
        process.send_signal(signal.SIGKILL)
    assert unfinished.exists()
    assert not list_environments(tmp_path).environments
    # Its lock went with it, and what it left is removed.
    made = make_environment(["engine==1.0"], installer=FakeInstaller(), folder=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [made.folder.name]
