"""Environments made once, found again, listed and removed; by an installer without a network."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from pytest_modelperf.environments.installing import find_installer
from pytest_modelperf.environments.records import CACHE_CONTENT, CacheContent, Environment
from pytest_modelperf.environments.store import (
    NOTE,
    UNFINISHED,
    list_environments,
    locked_environments,
    make_environment,
    prune_environments,
    with_sizes,
)
from pytest_modelperf.errors import EnvironmentMakingError, OutputError, UsageError
from tests.support.installers import FakeInstaller


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


@pytest.fixture
def installer() -> FakeInstaller:
    return FakeInstaller()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_environment_has_the_requirements_and_numpy(
    folder: Path, installer: FakeInstaller
) -> None:
    reported: list[str] = []
    made = make_environment(
        ["engine==1.0"], on_progress=reported.append, installer=installer, folder=folder
    )
    assert made.packages == {"engine": "1.0", "numpy": "2.1.0"}
    assert made.python.parent.parent == made.folder
    assert made.python.exists()
    assert reported == ["making an environment with engine==1.0 by fake", "created", "installed"]


@pytest.mark.parametrize("again", ["engine==1.0", "Engine == 1", "engine==1.0.0"])
def test_an_environment_is_made_once(folder: Path, installer: FakeInstaller, again: str) -> None:
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    reported: list[str] = []
    found = make_environment(
        [again], on_progress=reported.append, installer=installer, folder=folder
    )
    assert found == made
    assert (len(installer.installed), reported) == (1, [])


def test_other_requirements_make_another_environment(
    folder: Path, installer: FakeInstaller
) -> None:
    asked = (["engine==1.0"], ["engine==1.1"], ["engine==1.0", "numpy==1.26.4"])
    made = {make_environment(each, installer=installer, folder=folder).folder for each in asked}
    assert len(made) == 3


def test_a_range_is_resolved_once_and_kept(folder: Path, installer: FakeInstaller) -> None:
    made = make_environment(["engine<2"], installer=installer, folder=folder)
    assert made.packages["engine"] == "1.1"
    later = FakeInstaller({**installer.index, "engine": ("1.0", "1.1", "1.2")})
    assert make_environment(["engine<2"], installer=later, folder=folder) == made
    assert not later.installed


def test_a_range_and_the_version_that_it_resolved_to_share_an_environment(
    folder: Path, installer: FakeInstaller
) -> None:
    ranged = make_environment(["engine<2"], installer=installer, folder=folder)
    assert make_environment(["engine==1.1"], installer=installer, folder=folder) == ranged
    assert len(installer.installed) == 1
    other = make_environment(["engine>1,<2"], installer=installer, folder=folder)
    assert other.folder == ranged.folder
    (kept,) = list_environments(folder).environments
    assert kept.requests == (("engine<2",), ("engine<2,>1",))
    assert names_in(folder) == {ranged.folder.name}


def test_an_old_runtime_is_installed_at_once_with_an_old_numpy(
    folder: Path, installer: FakeInstaller
) -> None:
    made = make_environment(["onnxruntime==1.18.0"], installer=installer, folder=folder)
    assert made.packages["numpy"] == "1.26.4"
    assert installer.installed == [("onnxruntime==1.18.0", "numpy", "numpy<2")]


def test_a_range_that_resolves_to_an_old_runtime_gets_an_old_numpy(
    folder: Path, installer: FakeInstaller
) -> None:
    made = make_environment(["onnxruntime~=1.18.0"], installer=installer, folder=folder)
    assert made.packages == {"numpy": "1.26.4", "onnxruntime": "1.18.1"}
    assert installer.installed[1] == ("onnxruntime==1.18.1", "numpy<2")


def test_a_requirement_that_cannot_be_met_has_the_message_of_the_installer(
    folder: Path, installer: FakeInstaller
) -> None:
    with pytest.raises(EnvironmentMakingError) as raised:
        make_environment(["engine==9"], installer=installer, folder=folder)
    message = str(raised.value)
    assert message.startswith("no environment with engine==9 for Python 3.")
    assert "can be made: fake failed:\n  there is no engine like that\nGive a version " in message
    assert raised.value.exit_code == 3
    assert names_in(folder) == set()


def test_an_installer_that_installs_nothing_is_not_believed(folder: Path) -> None:
    class Idle(FakeInstaller):
        def install(self, *_: object) -> None:
            pass

    with pytest.raises(EnvironmentMakingError, match="reported success but installed nothing"):
        make_environment(["engine==1.0"], installer=Idle(), folder=folder)
    assert names_in(folder) == set()


def test_a_wrong_requirement_is_refused_before_anything_is_made(folder: Path) -> None:
    with pytest.raises(UsageError):
        make_environment(["engine 1"], folder=folder)
    assert not folder.exists()


def test_an_interrupted_install_leaves_nothing(folder: Path, installer: FakeInstaller) -> None:
    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    installer.interrupt = interrupt
    with pytest.raises(KeyboardInterrupt):
        make_environment(["engine==1.0"], installer=installer, folder=folder)
    assert names_in(folder) == set()


@pytest.mark.parametrize("wanted", ["engine==1.0", "engine<2"])
@pytest.mark.parametrize("place", ["file", "file/environments"])
def test_a_folder_that_cannot_be_written_is_an_error(
    wanted: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentMakingError, match="MODELPERF_CACHE_DIR"):
        make_environment([wanted], installer=FakeInstaller(), folder=tmp_path / place)
    assert not list_environments(tmp_path / place).environments


def test_an_unreadable_folder_is_reported_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "environments"
    folder.symlink_to(folder.name)
    with pytest.raises(
        EnvironmentMakingError, match=r"environments cannot be read: .* links\. Make"
    ):
        list_environments(folder)


def test_two_that_want_the_same_environment_make_it_once(folder: Path) -> None:
    installer, waits = FakeInstaller(), threading.Event()
    found: list[Environment] = []

    def make() -> None:
        def show(step: str) -> None:
            if "waiting" in step:
                waits.set()

        found.append(
            make_environment(["engine==1.0"], on_progress=show, installer=installer, folder=folder)
        )

    other = threading.Thread(target=make)

    def start_other(_: Path) -> None:
        if not other.ident:
            other.start()
            assert waits.wait(30)

    installer.interrupt = start_other
    make()
    other.join()
    assert found[0] == found[1]
    assert len(installer.installed) == 1


def test_an_environment_whose_python_was_removed_is_made_again(
    folder: Path, installer: FakeInstaller
) -> None:
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    made.python.unlink()
    made.python.symlink_to("/nowhere/python3")
    assert make_environment(["engine==1.0"], installer=installer, folder=folder) == made
    assert made.python.exists()
    assert len(installer.installed) == 2


@pytest.mark.parametrize("content", [None, "", "{}", '{"schema": 1', '{"schema": 99}'])
def test_an_environment_whose_note_is_broken_is_made_again(
    folder: Path, installer: FakeInstaller, content: str | None
) -> None:
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    note = made.folder / NOTE
    if content is None:
        note.unlink()
    else:
        note.write_text(content)
    (unreadable,) = list_environments(folder).unreadable
    assert unreadable.folder == made.folder
    assert make_environment(["engine==1.0"], installer=installer, folder=folder) == made
    assert not list_environments(folder).unreadable


def test_environments_are_pruned_by_their_last_use(folder: Path, installer: FakeInstaller) -> None:
    old, new = (
        make_environment([f"engine=={version}"], installer=installer, folder=folder)
        for version in ("1.0", "2.0")
    )
    for made, day in ((old, 1), (new, 20)):
        used = dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc).timestamp()
        os.utime(made.folder / NOTE, (used, used))
    since = dt.datetime(2026, 1, 10, tzinfo=dt.timezone.utc)
    removed = prune_environments(folder, since)
    assert [each.requirements for each in removed.environments] == [("engine==1.0",)]
    assert names_in(folder) == {new.folder.name}
    assert prune_environments(folder, since).environments == ()
    # A use makes it young again.
    make_environment(["engine==2.0"], installer=installer, folder=folder)
    (kept,) = list_environments(folder).environments
    assert kept.used > dt.datetime(2026, 2, 1, tzinfo=dt.timezone.utc)


def test_pruning_removes_what_killed_installs_and_broken_notes_left(
    folder: Path, installer: FakeInstaller
) -> None:
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    (folder / f"{UNFINISHED}0123" / "bin").mkdir(parents=True)
    shutil.copytree(made.folder, folder / "broken")
    (folder / "broken" / NOTE).unlink()
    removed = prune_environments(folder, dt.datetime(2000, 1, 1, tzinfo=dt.timezone.utc))
    assert [each.folder.name for each in removed.unreadable] == ["broken"]
    assert names_in(folder) == {made.folder.name}
    assert len(prune_environments(folder, None).environments) == 1
    assert names_in(folder) == set()


def test_the_next_install_removes_what_a_killed_one_left(
    folder: Path, installer: FakeInstaller
) -> None:
    (folder / f"{UNFINISHED}0123" / "lib").mkdir(parents=True)
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    assert names_in(folder) == {made.folder.name}


def test_a_folder_that_cannot_be_pruned_is_an_error_that_says_so(folder: Path) -> None:
    """A folder in the place of the lock is refused as one that cannot be written."""
    (folder / ".lock").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"environments in .* cannot be removed: .*\.lock: "):
        prune_environments(folder, None)


def test_a_file_that_is_gone_when_it_is_looked_at_has_no_size(
    folder: Path, installer: FakeInstaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python writes such files while it compiles modules."""
    made = make_environment(["engine==1.0"], installer=installer, folder=folder)
    kept = list_environments(folder)
    (before,) = with_sizes(kept).environments
    (made.folder / "module.pyc.1234").write_bytes(b"1234")
    found = os.walk

    def walk_before_it_goes(top: Path) -> list[tuple[str, list[str], list[str]]]:
        listed = [*found(top)]
        (made.folder / "module.pyc.1234").unlink()
        return listed

    monkeypatch.setattr(os, "walk", walk_before_it_goes)
    assert with_sizes(kept).environments == (before,)


def test_pruning_without_a_folder_does_nothing(folder: Path) -> None:
    assert not prune_environments(folder, None).environments
    assert not folder.exists()
    assert not list_environments(folder).environments


def test_the_lock_is_free_again_after_a_failure(folder: Path, installer: FakeInstaller) -> None:
    with pytest.raises(EnvironmentMakingError):
        make_environment(["engine==9"], installer=installer, folder=folder)
    waits: list[str] = []
    with locked_environments(folder, waits.append):
        assert not waits


def test_a_list_as_json_has_all_facts(folder: Path, installer: FakeInstaller) -> None:
    made = make_environment(["engine<2"], installer=installer, folder=folder)
    (folder / "broken").mkdir()
    document = json.loads(CACHE_CONTENT.dump(CacheContent(with_sizes(list_environments(folder)))))
    (entry,) = document["environments"]
    assert entry["requirements"] == ["engine==1.1"]
    assert entry["requests"] == [["engine<2"]]
    assert entry["python"] == str(made.python)
    assert entry["bytes"] > 100
    assert document["unreadable"] == [
        {"folder": str(folder / "broken"), "problem": "it has no environment.json"}
    ]
    assert document["removed"] == []


def test_uv_is_used_if_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_installer().name == "pip"
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    assert find_installer().name == "uv"
