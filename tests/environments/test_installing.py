"""The programs that install: how they are called, and what becomes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.environments.installing import Pip, Uv, packages_in, python_in
from pytest_modelperf.errors import EnvironmentMakingError

# A uv that writes down how it is called.
RECORDS = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
env >> "$(dirname "$0")/variables"
echo "  one line  "
echo
echo "another" >&2
"""


def write_uv(folder: Path, text: str, name: str = "uv") -> Uv:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return Uv(str(path))


def test_uv_gets_the_requirements_and_no_way_to_other_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET", "UV_SYSTEM_PYTHON"):
        monkeypatch.setenv(name, "misleading")
    monkeypatch.setenv("UV_INDEX_URL", "https://index.example")
    uv, told = write_uv(tmp_path, RECORDS), list[str]()
    uv.create(tmp_path, told.append)
    uv.install(tmp_path, ["engine==1.0", "numpy<2"], told.append)
    create, install = (tmp_path / "calls").read_text().splitlines()
    assert create.startswith("venv --relocatable --python ")
    assert install == (
        f"pip install --only-binary=:all: --python {python_in(tmp_path)} engine==1.0 numpy<2"
    )
    variables = (tmp_path / "variables").read_text()
    assert "misleading" not in variables
    assert "UV_INDEX_URL=https://index.example" in variables
    assert told == ["one line", "another"] * 2


@pytest.mark.parametrize("name", ["uv", "uv.exe"])
def test_a_program_that_fails_is_told_by_its_output(tmp_path: Path, name: str) -> None:
    uv = write_uv(tmp_path, "#!/bin/sh\necho '  x No solution found'\nexit 1\n", name)
    with pytest.raises(EnvironmentMakingError) as raised:
        uv.create(tmp_path, lambda _: None)
    assert str(raised.value) == "uv failed:\n    x No solution found"


def test_a_program_that_fails_in_silence_is_told_by_its_exit_code(tmp_path: Path) -> None:
    uv = write_uv(tmp_path, "#!/bin/sh\nexit 7\n")
    with pytest.raises(EnvironmentMakingError, match="uv failed without any output: exit code 7"):
        uv.create(tmp_path, lambda _: None)


def test_a_program_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    uv = write_uv(tmp_path, "#!/nowhere/sh\n")
    with pytest.raises(EnvironmentMakingError, match="cannot be run: No such file"):
        uv.create(tmp_path, lambda _: None)


def test_a_program_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    """Also what it started: otherwise the last line would never come."""
    uv = write_uv(tmp_path, "#!/bin/sh\necho begun\nsleep 600 &\nwait\n")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uv.create(tmp_path, interrupt)


def test_what_a_killed_installation_unpacked_goes_with_its_folder(tmp_path: Path) -> None:
    """The next making of an environment removes all of that name."""
    folder = tmp_path / ".making-1"
    folder.mkdir()
    uv, told = write_uv(tmp_path, '#!/bin/sh\necho "$TMPDIR"\n'), list[str]()
    uv.create(folder, told.append)
    (scratch,) = map(Path, told)
    assert scratch.parent == tmp_path
    assert scratch.name.startswith(folder.name)
    assert not scratch.exists()


def test_venv_makes_a_python_without_packages_of_this_one(tmp_path: Path) -> None:
    Pip().create(tmp_path, lambda _: None)
    assert python_in(tmp_path).exists()
    assert set(packages_in(tmp_path)) <= {"pip", "setuptools"}


def test_the_errors_of_venv_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "bin").write_text("no folder")
    with pytest.raises(EnvironmentMakingError, match="venv failed"):
        Pip().create(tmp_path, lambda _: None)


def test_an_environment_of_windows_is_read_where_it_has_its_files(tmp_path: Path) -> None:
    python = tmp_path / "Scripts" / "python.exe"
    metadata = tmp_path / "Lib" / "site-packages" / "engine-1.2.dist-info" / "METADATA"
    for path, text in ((python, ""), (metadata, "Name: engine\nVersion: 1.2\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert python_in(tmp_path) == python
    assert packages_in(tmp_path) == {"engine": "1.2"}
