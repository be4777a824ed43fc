"""Whether the content of a file is the recorded one, however its lines end."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE_BYTES = 1 << 20
# Only text is read whole, to look at the ends of its lines.
_MAX_TEXT_BYTES = 16 << 20


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def has_digest(content: bytes, recorded: str) -> bool:
    """Whether the content is the recorded one, even if git ended its lines as another system does.

    A program may be recorded on Windows, with CRLF, and compared on Linux.
    """
    if digest_of(content) == recorded:
        return True
    if b"\n" not in content or b"\0" in content:
        return False
    unix = content.replace(b"\r\n", b"\n")
    return recorded in {digest_of(unix), digest_of(unix.replace(b"\n", b"\r\n"))}


def file_has_digest(path: Path, recorded: str) -> bool:
    """The same of a file; OSError if it cannot be read."""
    if path.stat().st_size <= _MAX_TEXT_BYTES:
        return has_digest(path.read_bytes(), recorded)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest() == recorded
