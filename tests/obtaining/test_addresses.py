"""A file is fetched only by an address with a digest, and used only if it has that digest."""

from __future__ import annotations

import gc
import hashlib
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.obtaining.origins import (
    Downloads,
    ModelOrigin,
    OriginKind,
    fetch_model,
    is_address,
    read_address,
)

CONTENT = b"a model"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"another model").hexdigest()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing to the terminal."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server of this machine that has `m.onnx`."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Connections that a library left open after an error.
            gc.collect()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/x.onnx", True),
        ("hf://a/b@c/x.onnx", True),
        ("models/x.onnx", False),
        ("C:/models/x.onnx", False),
        ("file:///x.onnx", False),
    ],
)
def test_only_servers_have_addresses(text: str, expected: bool) -> None:  # noqa: FBT001
    assert is_address(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://host/x.onnx", "has no digest, and a file that may change is not fetched"),
        ("https://host/x.onnx#md5=1", "has no digest"),
        (f"https://host/x.onnx#sha256={DIGEST[:-1]}", "that is not 64 hexadecimal digits"),
        (f"https://host/x.onnx#sha256={DIGEST}0", "that is not 64 hexadecimal digits"),
        (f"hf://owner/name/x.onnx#sha256={DIGEST}", "hf://owner/name@revision/path/model.onnx"),
        (f"file:///x.onnx#sha256={DIGEST}", "takes an address that begins with https://"),
    ],
)
def test_an_address_without_all_that_fixes_the_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_address(text, "url")
    assert str(caught.value).startswith("url")
    assert message in str(caught.value)


def test_the_origin_has_the_address_and_the_digest_and_names_the_baseline() -> None:
    origin = read_address(f"https://host/a/x.onnx#sha256={DIGEST.upper()}", "url")
    assert origin == ModelOrigin(OriginKind.URL, "https://host/a/x.onnx", sha256=DIGEST)
    assert origin.baseline == "x.onnx"


def test_a_file_is_fetched_once_and_then_without_the_server(served: str, tmp_path: Path) -> None:
    origin = read_address(f"{served}/m.onnx#sha256={DIGEST}", "url")
    found = fetch_model(origin)
    assert found.read_bytes() == CONTENT
    (tmp_path / "served" / "m.onnx").unlink()
    assert fetch_model(origin) == found


def test_a_server_with_another_file_is_refused(served: str) -> None:
    with pytest.raises(UsageError, match="does not have the SHA-256"):
        fetch_model(read_address(f"{served}/m.onnx#sha256={OTHER}", "url"))


def test_a_file_that_was_changed_in_the_cache_is_not_used(served: str, cache: Path) -> None:
    origin = read_address(f"{served}/m.onnx#sha256={DIGEST}", "url")
    (file,) = {fetch_model(origin)}
    assert cache in file.parents
    file.write_bytes(b"changed")
    assert fetch_model(origin).read_bytes() == CONTENT


def test_an_address_that_cannot_be_fetched_says_what_to_take_along(
    served: str, cache: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        fetch_model(read_address(f"{served}/absent.onnx#sha256={DIGEST}", "url"))
    message = str(caught.value)
    assert "404" in message
    assert f"copy the cache here: {cache / 'fetched'}" in message


def test_a_file_of_the_hub_is_asked_for_by_repository_file_and_revision(tmp_path: Path) -> None:
    asked = []

    def hub(*of_file: str) -> str:
        asked.append(of_file)
        (tmp_path / "found.onnx").write_bytes(CONTENT)
        return str(tmp_path / "found.onnx")

    downloads = Downloads(url=_unused, hub=hub)
    address = f"hf://owner/name@0a1b/onnx/model.onnx#sha256={DIGEST}"
    assert fetch_model(read_address(address, "url"), downloads) == tmp_path / "found.onnx"
    assert asked == [("owner/name", "onnx/model.onnx", "0a1b")]
    with pytest.raises(UsageError, match="does not have the SHA-256"):
        fetch_model(read_address(address.replace(DIGEST, OTHER), "url"), downloads)


def test_a_hub_that_cannot_be_reached_says_what_to_do_there() -> None:
    def hub(*_: str) -> str:
        raise OSError("no route to host")

    with pytest.raises(UsageError, match=r"no route to host.*`hf download`.*HF_HOME"):
        fetch_model(
            read_address(f"hf://owner/name@0a1b/model.onnx#sha256={DIGEST}", "url"),
            Downloads(url=_unused, hub=hub),
        )


def _unused(*_: object) -> str:
    raise AssertionError("the hub has this file")
