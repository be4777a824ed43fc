"""The origin of a model that does not exist yet when tests are collected."""

from __future__ import annotations

import enum
from collections.abc import Callable

from msgspec import Struct

# The suffix of files in ONNX Runtime's own format.
ORT_SUFFIX = ".ort"


class OriginKind(enum.Enum):
    """The source of a model: a file that does not exist yet, a fixture, a function, or a server."""

    FILE = "file"
    FIXTURE = "fixture"
    FUNCTION = "function"
    URL = "url"


class ModelOrigin(Struct, frozen=True):
    """The origin of a model, which becomes a file when its test is set up.

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
