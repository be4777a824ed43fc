"""The cache of models by content: what is kept, what goes, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace

from pytest_modelperf.cluster.models import ModelCache, has_content, read_content, read_pieces
from pytest_modelperf.cluster.records import ModelContent
from pytest_modelperf.errors import MeasureError
from tests.graph.twin_models import convolutions
from tests.support.timed_models import write_timed


def model(folder: Path, weight: float, name: str = "model.onnx") -> ModelContent:
    folder.mkdir(exist_ok=True)
    write_timed(folder / name, weight=weight)
    return read_content(folder / name)


def receive(cache: ModelCache, content: ModelContent) -> None:
    incoming = cache.receive(content)
    # Pieces of one byte, to see that they are put together.
    for piece in read_pieces(content, piece_bytes=1):
        incoming.write(piece.name, piece.offset, piece.data)
    incoming.keep()


def is_kept(cache: ModelCache, content: ModelContent) -> bool:
    with cache.using(content) as path:
        return path is not None


def test_a_received_model_has_the_same_bytes(tmp_path: Path) -> None:
    cache, content = ModelCache(tmp_path / "cache"), model(tmp_path / "a", 1.0)
    assert not is_kept(cache, content)
    receive(cache, content)
    with cache.using(content) as path:
        assert path is not None
        assert path.name == "model.onnx"
        assert path.read_bytes() == Path(content.path).read_bytes()


def test_the_same_model_by_another_name_is_kept_once(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    first, second = model(tmp_path / "a", 1.0), model(tmp_path / "b", 1.0, "renamed.onnx")
    receive(cache, first)
    with cache.using(second) as path:
        assert path is not None
        assert path.name == "renamed.onnx"
        assert path.read_bytes() == Path(first.path).read_bytes()
    assert [each.name for each in cache.folder.iterdir()] == [first.digest]


def test_links_to_a_model_and_its_weights_are_read_where_they_are(tmp_path: Path) -> None:
    """A folder of Hugging Face links to files that have other names and are elsewhere."""
    real, links = tmp_path / "blobs", tmp_path / "snapshot"
    real.mkdir()
    links.mkdir()
    onnx.save(convolutions(), real / "model.onnx", save_as_external_data=True, size_threshold=0)
    for number, path in enumerate(sorted(real.iterdir())):
        (links / path.name).symlink_to(path.rename(real / str(number)))
    cache, content = ModelCache(tmp_path / "cache"), read_content(links / "model.onnx")
    assert has_content(Path(content.path), content)
    receive(cache, content)
    assert is_kept(cache, content)


def test_the_least_recently_used_goes_and_what_is_used_stays(tmp_path: Path) -> None:
    contents = [model(tmp_path / name, weight) for weight, name in enumerate("abcd", 1)]
    # Room for two, and the little that is stored with each.
    cache = ModelCache(tmp_path / "cache", int(2.5 * contents[0].size_bytes))
    for age, content in enumerate(contents[:2]):
        receive(cache, content)
        os.utime(cache.folder / content.digest, (age, age))
    with cache.using(contents[0]):
        os.utime(cache.folder / contents[0].digest, (0, 0))
        receive(cache, contents[2])
    assert [is_kept(cache, content) for content in contents] == [True, False, True, False]
    os.utime(cache.folder / contents[2].digest, (0, 0))
    receive(cache, contents[3])
    assert [is_kept(cache, content) for content in contents] == [True, False, False, True]
    assert len(list(cache.folder.iterdir())) == 2


def test_room_is_made_while_another_worker_removes_models_too(tmp_path: Path) -> None:
    cache, content = ModelCache(tmp_path / "cache"), model(tmp_path / "a", 1.0)
    cache.folder.mkdir()
    # It is listed, and gone when it is looked at.
    (cache.folder / ("0" * 64)).symlink_to(tmp_path / "gone")
    receive(cache, content)
    assert is_kept(cache, content)


def test_a_model_that_is_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    content = model(tmp_path / "a", 1.0)
    with pytest.raises(MeasureError, match="set MODELPERF_CACHE_LIMIT to more bytes"):
        ModelCache(tmp_path / "cache", content.size_bytes - 1).receive(content)


def test_other_bytes_than_were_announced_are_not_kept(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    content, other = model(tmp_path / "a", 1.0), model(tmp_path / "b", 2.0)
    with pytest.raises(MeasureError, match="arrived with other content"):
        receive(cache, replace(content, digest=other.digest))
    assert not is_kept(cache, other)


@pytest.mark.parametrize("name", ["../outside.bin", "/outside.bin", "weights/../../x", ".in-use"])
def test_a_file_outside_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    content = model(tmp_path / "a", 1.0)
    part = replace(content.parts[0], name=name)
    incoming = ModelCache(tmp_path / "cache").receive(
        replace(content, parts=(*content.parts, part))
    )
    with pytest.raises(MeasureError, match="is not a file of the announced model"):
        incoming.write(name, 0, b"x")
    with pytest.raises(MeasureError, match="is not a file of the announced model"):
        incoming.write("unannounced", 0, b"x")


def test_a_kept_model_that_was_overwritten_is_received_again(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    content, other = model(tmp_path / "a", 1.0), model(tmp_path / "b", 2.0)
    assert content.size_bytes == other.size_bytes
    receive(cache, content)
    kept = cache.folder / content.digest / content.name
    kept.write_bytes(Path(other.path).read_bytes())
    assert not is_kept(cache, content)
    receive(cache, content)
    with cache.using(content) as path:
        assert path == kept
        assert path.read_bytes() == Path(content.path).read_bytes()


def test_a_kept_model_whose_file_is_gone_is_received_again(tmp_path: Path) -> None:
    cache, content = ModelCache(tmp_path / "cache"), model(tmp_path / "a", 1.0)
    receive(cache, content)
    (cache.folder / content.digest / content.name).unlink()
    assert not is_kept(cache, content)
    receive(cache, content)
    assert is_kept(cache, content)


def test_a_digest_names_no_other_folder(tmp_path: Path) -> None:
    content = replace(model(tmp_path / "a", 1.0), digest="../../outside")
    with pytest.raises(MeasureError, match="is not the digest"):
        ModelCache(tmp_path / "cache").receive(content)
