"""The path of a model as the name of a folder, and back.

Two models never share a folder, even if the file system does not distinguish `a` from `A`, and
every name stays inside the folder of the baselines:

- `models/encoder.onnx` is `models--encoder`: a slash is two hyphens, the suffix is left out;
- a path without that suffix ends in `+`: `encoder.ort` is `encoder.ort+`;
- a capital is its small letter after a plus sign: `ResNet.onnx` is `+res+net`;
- any other character is its bytes in UTF-8 as `%c3%a9`, and so are those that have a meaning for a
  file system or a shell at their position.
"""

from __future__ import annotations

import hashlib
import posixpath
import re

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

_SUFFIX = ".onnx"
_NO_SUFFIX = "+"
_SLASH = "--"
_PLAIN = re.compile(r"[a-z0-9._-]", re.ASCII)
_TOKEN = re.compile(r"--|%([0-9a-f]{2})|\+([a-z])|([a-z0-9._-])", re.ASCII)
# The names that a folder may have: the alphabet above, with no dot at the start or the end.
_SAFE = re.compile(r"(?!\.)[a-z0-9._+%-]*[a-z0-9_+%-]", re.ASCII)
# Windows opens devices by these names, with any suffix.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|\Z)", re.ASCII)
# Some file systems allow only 143 bytes. The end of a longer name is replaced by a digest.
MAX_LENGTH = 140
_DIGEST = "%--"
_DIGEST_LENGTH = 32


def folder_name(model: str) -> str:
    """Return the folder name for a model's path, which is relative to the project, with slashes."""
    path = posixpath.normpath(model) if model else ""
    if not path or path == "." or path.startswith("/") or "\0" in path:
        raise UsageError(
            f"{printable(model) or 'an empty text'} cannot name a baseline: "
            "give the path of the model relative to the project."
        )
    body = path.removesuffix(_SUFFIX)
    # A file named `.onnx` has no stem that could be its folder name.
    has_suffix = body != path and bool(posixpath.basename(body))
    parts = (path[: -len(_SUFFIX)] if has_suffix else path).split("/")
    name = _SLASH.join(map(escape_part, parts)) + ("" if has_suffix else _NO_SUFFIX)
    return shorten_name(rename_device(name))


def rename_device(name: str) -> str:
    """Escape the first character of a name that Windows would open as a device."""
    return f"%{ord(name[0]):02x}{name[1:]}" if _DEVICE.match(name) else name


def shorten_name(name: str) -> str:
    """Replace the end of an ASCII file or folder name by a digest if the name is too long."""
    if len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return name[: MAX_LENGTH - len(_DIGEST) - len(digest)] + _DIGEST + digest


def model_path(name: str) -> str | None:
    """Return the path of the model of a folder, or None if its name was cut or made elsewhere."""
    has_suffix = not name.endswith(_NO_SUFFIX)
    rest = name if has_suffix else name[: -len(_NO_SUFFIX)]
    found = bytearray()
    position = 0
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            return None
        position = match.end()
        if match[1] is not None:
            found.append(int(match[1], 16))
        else:
            text = "/" if match[0] == _SLASH else (match[2] or "").upper() or match[3]
            found += text.encode()
    path = found.decode("utf-8", "surrogateescape") + (_SUFFIX if has_suffix else "")
    try:
        return path if folder_name(path) == name else None
    except UsageError:
        return None


def model_name(folder: str) -> str:
    """Return the path of the model of a folder, or the folder's name if the path is unknown."""
    return printable(model_path(folder) or folder)


def is_safe_name(name: str) -> bool:
    """Whether `folder_name` could have made this name, so that it leads to no other folder."""
    return len(name) <= MAX_LENGTH and _SAFE.fullmatch(name) is not None


def escape_part(part: str) -> str:
    """Escape what has a special meaning in a folder's name in one part of a path."""
    text = ""
    for index, char in enumerate(part):
        is_edge = index in {0, len(part) - 1}
        is_double = char == "-" and index > 0 and part[index - 1] == "-"
        if char in ".-" and (is_edge or is_double):
            text += f"%{ord(char):02x}"
        elif _PLAIN.match(char):
            text += char
        elif char.isascii() and char.isupper():
            text += f"+{char.lower()}"
        else:
            text += "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
    return text
