"""Requirements read and constrained, the programs that install, and the bytes on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.environments.installing import (
    Pip,
    Uv,
    constraints_of,
    failure_of,
    installed_size,
    is_met,
    packages_in,
    python_in,
    read_requirements,
)
from pytest_modelperf.errors import EnvironmentMakingError, UsageError

VERSIONS = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)


@pytest.mark.parametrize(
    ("text", "key", "is_exact"),
    [
        ("onnxruntime==1.22.0", "onnxruntime==1.22", True),
        ("OnnxRuntime == 1.22", "onnxruntime==1.22", True),
        ("onnxruntime==1.22.*", "onnxruntime==1.22.*", False),
        ("onnxruntime>=1.20,<1.22", "onnxruntime<1.22,>=1.20", False),
        ("onnxruntime~=1.22", "onnxruntime~=1.22", False),
        ("onnxruntime", "onnxruntime", False),
        ("a_b.c[y,x]==1.0", "a-b-c[x,y]==1", True),
    ],
)
def test_a_requirement_has_one_form(text: str, key: str, is_exact: bool) -> None:  # noqa: FBT001
    wanted = read_requirements([text])
    assert wanted.key == (key,)
    assert (wanted.versions is not None) is is_exact


@given(VERSIONS)
def test_zeros_at_the_end_of_a_version_change_nothing(version: str) -> None:
    longer = read_requirements([f"engine=={version}.0"])
    assert longer.key == read_requirements([f"engine=={version}"]).key


@given(st.permutations(["engine==1.0", "numpy<2", "onnxruntime==1.18.0"]))
def test_the_order_of_requirements_changes_nothing(texts: list[str]) -> None:
    assert read_requirements(texts) == read_requirements(sorted(texts))


def test_several_requirements_are_exact_if_all_are() -> None:
    assert read_requirements(["engine==1", "numpy==2.1"]).versions == {
        "engine": "1",
        "numpy": "2.1",
    }
    assert read_requirements(["engine==1", "numpy"]).versions is None


def test_a_resolved_range_is_exact() -> None:
    exact = read_requirements(["engine[extra]>1", "numpy"]).exactly(
        {"engine": "2.0", "numpy": "2.1.0", "other": "3"}
    )
    assert exact.requirements == ("engine[extra]==2.0", "numpy==2.1.0")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no requirement is given"),
        (["onnxruntime 1.22"], "cannot be read"),
        (["--index-url=https://elsewhere"], "cannot be read"),
        (["onnxruntime==1.22.0 --index-url https://elsewhere"], "cannot be read"),
        (["onnxruntime @ https://elsewhere/a.whl"], "names an address"),
        (["onnxruntime==1; python_version > '3'"], "has a condition"),
        (["engine==1", "Engine==2"], "engine is required twice"),
        (["engine\n==1\nother"], "cannot be read"),
    ],
)
def test_a_requirement_that_is_none_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        read_requirements(texts)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("requirement", "packages", "constraints"),
    [
        ("onnxruntime", {"onnxruntime": "1.18.1"}, ("numpy<2",)),
        ("onnxruntime", {"onnxruntime": "1.19.0"}, ()),
        ("onnxruntime-gpu", {"onnxruntime-gpu": "1.17.0"}, ("numpy<2",)),
        ("onnxruntime-gpu", {"onnxruntime-gpu": "1.22.0"}, ()),
        ("engine", {"engine": "1.0", "numpy": "2.1.0"}, ()),
        ("engine", {"onnxruntime": "no version"}, ()),
    ],
)
def test_an_old_runtime_gets_the_numpy_that_it_was_compiled_for(
    requirement: str, packages: dict[str, str], constraints: tuple[str, ...]
) -> None:
    assert constraints_of(read_requirements([requirement]), packages) == constraints


def test_the_numpy_of_the_user_is_not_constrained() -> None:
    wanted = read_requirements(["onnxruntime==1.17", "numpy==2.1"])
    assert constraints_of(wanted, {"onnxruntime": "1.17"}) == ()


def test_a_constraint_is_about_a_package_that_is_there() -> None:
    assert is_met("numpy<2", {"numpy": "1.26.4"})
    assert is_met("numpy<2", {"engine": "3"})
    assert not is_met("numpy<2", {"numpy": "2.1.0"})


PIP = """\
Looking in indexes: https://pypi.org/simple
WARNING: Retrying (Retry(total=1)) after connection broken: /simple/engine/
WARNING: Retrying (Retry(total=0)) after connection broken: /simple/engine/
ERROR: Could not find a version that satisfies the requirement engine==9 (from versions: none)
ERROR: No matching distribution found for engine==9
"""


def test_the_errors_of_pip_are_shown_and_nothing_else() -> None:
    assert failure_of(PIP.replace("none", "1.0, 2.0")) == (
        "  Could not find a version that satisfies the requirement engine==9 "
        "(from versions: 1.0, 2.0)\n"
        "  No matching distribution found for engine==9"
    )


def test_an_index_that_cannot_be_reached_is_reported_too() -> None:
    assert failure_of(PIP).splitlines()[0] == (
        "  Retrying (Retry(total=0)) after connection broken: /simple/engine/"
    )


def test_output_without_an_error_is_shown_by_its_end() -> None:
    assert failure_of("\n".join(f"line {n}" for n in range(30))).splitlines() == [
        f"  line {n}" for n in range(18, 30)
    ]
    assert failure_of("\n \n") == ""


def test_no_text_of_an_index_steers_the_terminal() -> None:
    assert failure_of("ERROR: \x1b[2Jgone") == "  \\x1b[2Jgone"


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
    uv, reported = write_uv(tmp_path, RECORDS), list[str]()
    uv.create(tmp_path, reported.append)
    uv.install(tmp_path, ["engine==1.0", "numpy<2"], reported.append)
    create, install = (tmp_path / "calls").read_text().splitlines()
    assert create.startswith("venv --relocatable --python ")
    assert install == (
        f"pip install --only-binary=:all: --python {python_in(tmp_path)} engine==1.0 numpy<2"
    )
    variables = (tmp_path / "variables").read_text()
    assert "misleading" not in variables
    assert "UV_INDEX_URL=https://index.example" in variables
    assert reported == ["one line", "another"] * 2


@pytest.mark.parametrize("name", ["uv", "uv.exe"])
def test_a_program_that_fails_is_reported_with_its_output(tmp_path: Path, name: str) -> None:
    uv = write_uv(tmp_path, "#!/bin/sh\necho '  x No solution found'\nexit 1\n", name)
    with pytest.raises(EnvironmentMakingError) as raised:
        uv.create(tmp_path, lambda _: None)
    assert str(raised.value) == "uv failed:\n    x No solution found"


def test_a_program_that_fails_in_silence_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    uv = write_uv(tmp_path, "#!/bin/sh\nexit 7\n")
    with pytest.raises(EnvironmentMakingError, match="uv failed without any output: exit code 7"):
        uv.create(tmp_path, lambda _: None)


def test_a_program_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    uv = write_uv(tmp_path, "#!/nowhere/sh\n")
    with pytest.raises(EnvironmentMakingError, match="cannot be run: No such file"):
        uv.create(tmp_path, lambda _: None)


def test_a_program_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    """Also what it started: otherwise the last line would never come."""
    uv = write_uv(tmp_path, "#!/bin/sh\necho begun\nsleep 600 &\nwait\n")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uv.create(tmp_path, interrupt)


def test_files_of_a_killed_installation_go_with_its_folder(tmp_path: Path) -> None:
    """The next making of an environment removes all of that name."""
    folder = tmp_path / ".making-1"
    folder.mkdir()
    uv, reported = write_uv(tmp_path, '#!/bin/sh\necho "$TMPDIR"\n'), list[str]()
    uv.create(folder, reported.append)
    (scratch,) = map(Path, reported)
    assert scratch.parent == tmp_path
    assert scratch.name.startswith(folder.name)
    assert not scratch.exists()


def test_venv_makes_a_python_without_packages_of_this_one(tmp_path: Path) -> None:
    Pip().create(tmp_path, lambda _: None)
    assert python_in(tmp_path).exists()
    assert set(packages_in(tmp_path)) <= {"pip", "setuptools"}


def test_the_errors_of_venv_are_shown_too(tmp_path: Path) -> None:
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


def install(site: Path, name: str, size: int, requires: Sequence[str] = ()) -> None:
    """A distribution with one module of this many bytes, as an installer leaves it."""
    (site / f"{name}.py").write_bytes(b"#" * size)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "RECORD").write_text(f"{name}.py,,\n{name}_missing.py,,\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_requirements_of_a_distribution_belong_to_it(site: Path) -> None:
    install(site, "mp_app", 10, ["mp-lib>=1", "mp_extra; extra == 'all'", "mp_absent"])
    install(site, "mp_lib", 200, ["mp_base", "mp_other; sys_platform == 'nowhere'"])
    install(site, "mp_base", 3_000_000, ["mp_app"])
    install(site, "mp_extra", 40_000)
    install(site, "mp_other", 500_000)
    found = installed_size("mp_app")
    assert dict(found.sizes) == {"mp-app": 10, "mp-lib": 200, "mp-base": 3_000_000}
    assert found.total == 3_000_210
    assert found.describe() == "mp-app and 2 requirements; mp-base takes 3.0 MB"
    assert installed_size("mp_app[all]").total == 3_040_210


def test_a_distribution_alone_is_named_alone(site: Path) -> None:
    install(site, "mp_base", 7)
    assert installed_size("mp_base").describe() == "mp-base"


@pytest.mark.parametrize("name", ["mp_nowhere", "no name", "", "\x1b[31m"])
def test_a_distribution_that_is_not_installed_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="install_bytes: there is no distribution") as caught:
        installed_size(name)
    assert "\x1b" not in caught.value.message
