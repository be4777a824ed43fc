"""Where a model comes from that is not there when tests are collected."""

from __future__ import annotations

import enum
from collections.abc import Callable

from msgspec import Struct

# The suffix of files in ONNX Runtime's own format.
ORT_SUFFIX = ".ort"


class OriginKind(enum.Enum):
    """What has the model: a file that is not there yet, a fixture, a function, or a server."""

    FILE = "file"
    FIXTURE = "fixture"
    FUNCTION = "function"
    URL = "url"


class ModelOrigin(Struct, frozen=True):
    """Where a model comes from; it becomes a file when its test is set up.

    `name` is the path as it was written, the name of the fixture, that of the function as
    `package.module:function`, or the address without the digest. A `function` that was given has no
    name to import. `sha256` is the digest of the file at an address.
    """

    kind: OriginKind
    name: str
    function: Callable[[], object] | None = None
    sha256: str | None = None

    @property
    def baseline(self) -> str | None:
        """The path that names the baseline unless another one is given; None: it has to be."""
        if self.kind is OriginKind.URL:
            return self.name.rpartition("/")[2]
        return self.name if self.kind is OriginKind.FIXTURE else None

    @property
    def short_name(self) -> str:
        """The part of the name that the ids of several models in one test begin with."""
        last = self.name.rpartition("/")[2].rpartition(":")[2]
        return last.rpartition(".")[0] or last

    def __str__(self) -> str:
        return self.name if self.kind is not OriginKind.FIXTURE else f"the fixture {self.name}"
