"""Paths of the work tree in the tree of a side."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pytest_modelperf.programs.trees import SideTree


@pytest.fixture
def tree(tmp_path: Path) -> SideTree:
    prefix = tmp_path / "work" / ".venv"
    return SideTree(str(tmp_path / "older"), str(tmp_path / "work"), [str(prefix)])


def test_paths_below_the_work_tree_are_mapped_and_others_stay(
    tree: SideTree, tmp_path: Path
) -> None:
    work, older = tmp_path / "work", tmp_path / "older"
    stay = [
        str(tmp_path / "workshop"),
        str(work / ".venv" / "lib"),
        str(work / "lib/site-packages"),
    ]
    given = [str(work), str(work / "src"), *stay, str(older / "src"), ""]
    assert tree.import_paths(given, ["lib"]) == [
        str(older / "lib"),
        str(older),
        str(older / "src"),
        *stay,
    ]


def test_the_work_tree_itself_maps_nothing(tmp_path: Path) -> None:
    tree = SideTree(str(tmp_path), str(tmp_path), [])
    assert tree.import_paths([str(tmp_path / "a")], []) == [str(tmp_path / "a")]
    assert tree.place(str(tmp_path / "a" / "b.txt")) == "a/b.txt"


def test_a_tree_below_the_work_tree_is_its_own(tmp_path: Path) -> None:
    tree = SideTree(str(tmp_path / ".cache" / "older"), str(tmp_path), [])
    own = str(tmp_path / ".cache" / "older" / "a.py")
    assert tree.mapped(own) == own
    assert tree.place_in_worktree(own) is None
    assert tree.place_in_worktree(str(tmp_path / "a.py")) == "a.py"


def test_links_are_followed(tmp_path: Path, tree: SideTree) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    assert tree.mapped(str(tmp_path / "link" / "a")) == str(tmp_path / "older" / "a")


@pytest.mark.parametrize(
    ("place", "stored"),
    [
        ("older/models/a.onnx", "models/a.onnx"),
        ("home/.cache/hub/a.onnx", "~/.cache/hub/a.onnx"),
        ("home/env/lib/site-packages/reader/a.onnx", None),
        ("temporary/exported/a.onnx", None),
        ("data/a.onnx", "{}/data/a.onnx"),
    ],
)
def test_a_later_run_finds_the_model_of_a_program(
    place: str,
    stored: str | None,
    tree: SideTree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    expected = None if stored is None else stored.format(tmp_path.as_posix())
    assert tree.model_place(str(tmp_path / place)) == expected
