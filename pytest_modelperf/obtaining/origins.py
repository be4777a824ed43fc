"""The origins of models that do not exist when tests are collected, and the files of some.

Python code returns a model in several forms: a path, bytes, or a model of onnx or onnx-ir.

A fetched file is used only if its bytes have the digest in the address. So a server cannot replace
the model of a baseline, or pass other data to the parsers of models and engines.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.files.opened import digest_of
from pytest_modelperf.files.store import user_cache_folder
from pytest_modelperf.text.escaping import printable

# The suffix of files in ONNX Runtime's own format.
ORT_SUFFIX = ".ort"


class OriginKind(enum.Enum):
    """The source of a model: a file that does not exist yet, a fixture, a function, or a server."""

    FILE = "file"
    FIXTURE = "fixture"
    FUNCTION = "function"
    URL = "url"


class ModelOrigin(Struct, frozen=True):
    """The origin of a model that becomes a file when its test is set up.

    `name` is the path as the user wrote it, the name of the fixture, that of the function as
    `package.module:function`, or the address without the digest. `function` is set if the
    user gave the function itself. `sha256` is the digest of the file at an address.
    """

    kind: OriginKind
    name: str
    function: Callable[[], object] | None = None
    sha256: str | None = None

    @property
    def baseline(self) -> str | None:
        """The default path that names the baseline, or None if the user must give one."""
        if self.kind is OriginKind.URL:
            return self.name.rpartition("/")[2]
        return self.name if self.kind is OriginKind.FIXTURE else None

    @property
    def short_name(self) -> str:
        """The start of the ids of a model in a test with several models."""
        last = self.name.rpartition("/")[2].rpartition(":")[2]
        return last.rpartition(".")[0] or last

    def __str__(self) -> str:
        return self.name if self.kind is not OriginKind.FIXTURE else f"the fixture {self.name}"


_SCHEMES = ("https://", "http://", "hf://")
_HUB = "hf://"
_DIGEST_FORM = "#sha256="
_DIGEST = re.compile(r"[0-9a-f]{64}")
# `hf://owner/name@revision/path/of/the/file`; old repositories have no owner.
_HUB_FORM = re.compile(r"hf://((?:[^/@]+/)?[^/@]+)@([^/]+)/(.+)")


def is_address(text: str) -> bool:
    """Whether a text names a model by its address and not by its path."""
    return text.startswith(_SCHEMES)


def read_address(text: str, option: str) -> ModelOrigin:
    """Return the origin that an address names.

    Raises UsageError for an address without a digest.
    """
    address, _, digest = text.partition(_DIGEST_FORM)
    shown = printable(address)
    if not is_address(address):
        raise UsageError(
            f"{option} takes an address that begins with {', '.join(_SCHEMES)}, not {shown}."
        )
    if address.startswith(_HUB) and _HUB_FORM.fullmatch(address) is None:
        raise UsageError(
            f"{option}: {shown} does not name a file of the Hugging Face Hub. Write "
            "hf://owner/name@revision/path/model.onnx, with a commit as the revision."
        )
    if _DIGEST.fullmatch(digest.lower()) is None:
        what = "has no digest" if not digest else "has a digest that is not 64 hexadecimal digits"
        raise UsageError(
            f"{option}: {shown} {what}, and a file that may change is not fetched. Download it "
            "once, look at it, and add the output of `sha256sum FILE` (Windows: "
            f"`certutil -hashfile FILE SHA256`), as in {shown}{_DIGEST_FORM}0123..."
        )
    return ModelOrigin(OriginKind.URL, address, sha256=digest.lower())


class Downloads(Struct, frozen=True):
    """The functions that fetch files: `url` from a server, `hub` from the Hugging Face Hub.

    `url` takes the address, its digest and the folder of the cache. `hub` takes the repository, the
    path of the file in it and the revision. Both return the path of the file.
    """

    url: Callable[[str, str, Path], str]
    hub: Callable[[str, str, str], str]


def fetch_model(origin: ModelOrigin, downloads: Downloads | None = None) -> Path:
    """Return the file at an address, from the cache if possible.

    Raises UsageError if the file cannot be fetched, or has another digest.
    """
    address, digest = origin.name, str(origin.sha256)
    downloads = downloads or Downloads(_from_server, _from_hub)
    hub = _HUB_FORM.fullmatch(address)
    module = "pooch" if hub is None else "huggingface_hub"
    if find_spec(module) is None:
        raise UsageError(
            f"{printable(address)} is fetched with {module}: pip install 'pytest-modelperf[fetch]'"
        )
    try:
        if hub is None:
            found = Path(downloads.url(address, digest, user_cache_folder() / "fetched"))
        else:
            repository, revision, name = hub.groups()
            found = Path(downloads.hub(repository, name, revision))
    except Exception as error:
        # Network libraries have many classes of errors.
        if "hash" in str(error) and "does not match" in str(error):
            raise _other_digest(address, digest) from error
        raise UsageError(_cannot_fetch(address, hub is not None, error)) from error
    if digest_of(str(found)) != digest:
        raise _other_digest(address, digest, found)
    return found


def _other_digest(address: str, digest: str, found: Path | None = None) -> UsageError:
    place = "" if found is None else f" in {printable(str(found))}"
    return UsageError(
        f"the file{place} of {printable(address)} does not have the SHA-256 {digest}: the server "
        "has another file now, or the digest is mistyped. If you trust the new file, download it, "
        "and write the output of `sha256sum FILE` into the address."
    )


def _cannot_fetch(address: str, is_of_hub: bool, error: Exception) -> str:  # noqa: FBT001
    first = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    what = (
        "fetch it on a machine with a network, with `hf download`, and copy the cache of the hub "
        "(HF_HOME) here"
        if is_of_hub
        else "run the test on a machine with a network, and copy the cache here: "
        f"{printable(str(user_cache_folder() / 'fetched'))}"
    )
    return (
        f"{printable(address)} cannot be fetched: {printable(first)}. Is the address right, and is "
        f"there a network? Without one, {what}."
    )


def _from_server(address: str, digest: str, folder: Path) -> str:
    import pooch

    with _quiet(pooch.get_logger()):
        return str(pooch.retrieve(address, f"sha256:{digest}", path=folder))


def _from_hub(repository: str, name: str, revision: str) -> str:
    import huggingface_hub

    # The declared type includes the answer of a dry run.
    found: Any = huggingface_hub.hf_hub_download(repository, name, revision=revision)
    return str(found)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


# -- models that Python code returns


# The type that `torch.onnx.export` returns, which has a model of onnx-ir in an attribute.
_PROGRAM = "ONNXProgram"
_IR = "onnx_ir"
_TAKES = "the path of a model, its bytes, an onnx.ModelProto, or a model of onnx-ir"


def file_of(value: object, what: str, folder: Path, name: str) -> Path:
    """Return the file of a model. A model that is not a file is written into the folder.

    `what` is the source of the value, for messages. Raises UsageError if the value is not a model.
    """
    if isinstance(value, str | os.PathLike):
        path = Path(value)
        if not path.is_file():
            raise UsageError(f"{what} returned the path {path}, and there is no such file.")
        return path
    target = folder / f"{name}.onnx"
    value = getattr(value, "model", value) if type(value).__name__ == _PROGRAM else value
    if _is_of_ir(value):
        folder.mkdir(parents=True, exist_ok=True)
        # Tensors in other files are written too.
        import_module(_IR).save(value, target, external_data=f"{name}.onnx.data")
        return target
    content = _content_of(value, what)
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def _is_of_ir(value: object) -> bool:
    is_model = type(value).__name__ == "Model" and hasattr(value, "graph")
    return is_model and type(value).__module__.partition(".")[0] == _IR


def _content_of(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    serialize: Any = getattr(value, "SerializeToString", None)
    if serialize is None:
        raise UsageError(
            f"{what} returned {_article(type(value).__name__)}; expected {_TAKES}. Have it "
            "export the model and return that."
        )
    try:
        return bytes(serialize())
    except Exception as error:
        # Each implementation of protobuf raises another class of error.
        raise ModelError(
            f"{what} returned a model that could not be serialized: {error}. If it has more than "
            "2 GB, save it with its weights in a file of their own, and return the path."
        ) from error


def _article(name: str) -> str:
    return "nothing" if name == "NoneType" else f"a value of the type {name}"
