"""A digest differs wherever a byte or a name differs, and a file is read for it only once."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import ChangedModelError, ModelError
from pytest_modelperf.graph.model_bytes import Clock, SeenFile, digest_model

# Few of each, so that two models often share a part.
_BYTES = st.sampled_from([b"", b"a", b"b", b"ab"])
_FILES = st.tuples(_BYTES, st.dictionaries(st.sampled_from(["a", "b", "ab", "é"]), _BYTES))


def see(path: Path) -> SeenFile:
    return SeenFile.of(path, path.stat())


def write(folder: Path, graph: bytes, beside: Mapping[str, bytes]) -> str:
    """The digest of a model of these bytes."""
    (folder / "model.onnx").write_bytes(graph)
    for name, content in beside.items():
        (folder / name).write_bytes(content)
    seen = {name: see(folder / name) for name in beside}
    return digest_model(see(folder / "model.onnx"), seen, lambda _: None)


@given(_FILES, _FILES)
def test_two_digests_are_equal_where_all_bytes_and_names_are(
    one: tuple[bytes, dict[str, bytes]], other: tuple[bytes, dict[str, bytes]]
) -> None:
    digests = []
    for graph, beside in (one, other, one):
        with TemporaryDirectory() as folder:
            digests.append(write(Path(folder), graph, beside))
    assert (digests[0] == digests[1]) == (one == other)
    assert digests[0] == digests[2]
    assert all(len(digest) == 64 for digest in digests)


@given(_BYTES)
def test_a_model_in_one_file_has_the_digest_of_that_file(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        assert write(Path(folder), content, {}) == hashlib.sha256(content).hexdigest()


@given(st.permutations(["a", "b", "c"]))
def test_the_order_in_which_a_model_names_its_files_does_not_matter(order: list[str]) -> None:
    with TemporaryDirectory() as folder:
        ordered = write(Path(folder), b"g", {name: name.encode() for name in "abc"})
        assert write(Path(folder), b"g", {name: name.encode() for name in order}) == ordered


def test_a_file_is_read_again_only_when_it_was_written(tmp_path: Path) -> None:
    weights = tmp_path / "w"
    first = write(tmp_path, b"graph", {"w": b"before"})
    found = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"after!")
    # As if nothing had been written: who reads the bytes would see it.
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns))
    model = see(tmp_path / "model.onnx")
    assert digest_model(model, {"w": see(weights)}, lambda _: None) == first
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
    assert digest_model(model, {"w": see(weights)}, lambda _: None) != first


def ticking(seconds: float) -> Clock:
    """A clock that goes on by so much whenever it is looked at."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) * seconds


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.6, ["reading weights (3.000 KiB)"]), (0.1, [])]
)
def test_reading_that_lasts_is_told_once_with_the_size_of_all_files(
    tmp_path: Path, seconds: float, expected: list[str]
) -> None:
    beside = {"a": b"x" * 1000, "b": b"y" * 2000}
    for name, content in {"m": b"z" * 72, **beside}.items():
        (tmp_path / name).write_bytes(content)
    seen = {name: see(tmp_path / name) for name in beside}
    told: list[str] = []
    digest_model(see(tmp_path / "m"), seen, told.append, ticking(seconds))
    assert told == expected
    digest_model(see(tmp_path / "m"), seen, told.append, ticking(seconds))
    assert told == expected, "what is known is not read"


@pytest.mark.parametrize("change", ["written", "replaced", "removed"])
def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path: Path, change: str) -> None:
    graph, weights, other = tmp_path / "m", tmp_path / "w", tmp_path / "other"
    for path, content in ((graph, b"graph"), (weights, b"before"), (other, b"after!")):
        path.write_bytes(content)

    def disturb(_: str) -> None:
        if change == "written":
            weights.write_bytes(b"longer than before")
        elif change == "replaced":
            other.replace(weights)
        else:
            weights.unlink()

    with pytest.raises(ChangedModelError, match="w was "):
        digest_model(see(graph), {"w": see(weights)}, disturb, ticking(0.9))


def test_a_file_that_cannot_be_read_is_an_error_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(ModelError, match=r"m cannot be read: Is a directory\."):
        digest_model(see(tmp_path / "m"), {}, lambda _: None, time.monotonic)
