"""A model as it is sent to a cluster: its content, and its bytes piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.cluster.records import ModelContent, SentFile
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.text.escaping import printable

# The bytes of each model that lie in the memory of a process at once while it is sent.
PIECE_BYTES = 8 << 20


class Piece(Struct, frozen=True):
    """Some bytes of a file of a model, and where they stand in it."""

    name: str
    offset: int
    data: bytes


def read_content(source: ModelSource) -> ModelContent:
    """The content of a model; ModelError where external data cannot be read."""
    file = open_model(source)
    if file.path is None:
        raise UsageError(f"{printable(file.name)} is no file, and a cluster takes files: save it.")
    beside = [SentFile(name, seen.size_bytes) for name, seen in sorted(file.beside().items())]
    graph = SentFile(file.path.name, file.size_bytes)
    # A link is not resolved: the model's external data lies beside the link.
    return ModelContent(str(file.path.absolute()), file.sha256(), (graph, *beside))


def read_pieces(content: ModelContent, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """All bytes of a model, file by file."""
    folder = Path(content.path).parent
    names = {content.name: Path(content.path)}
    for part in content.parts:
        with names.get(part.name, folder / part.name).open("rb") as file:
            offset, data = 0, file.read(piece_bytes)
            # An empty file is one empty piece.
            yield Piece(part.name, offset, data)
            while data:
                offset, data = offset + len(data), file.read(piece_bytes)
                yield Piece(part.name, offset, data)
