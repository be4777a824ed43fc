"""The line of a `.gitattributes` file that keeps git from merging twins by lines."""

from __future__ import annotations

import re

NAME = ".gitattributes"
_TWINS = "**/twin.onnx"
# Models in Git LFS would take the twins along, which are small and need to be there at once.
_LFS = re.compile(r"^\*[\w.]*onnx\s.*\bfilter=lfs\b|^\*\*/\*\.onnx\s.*\bfilter=lfs\b", re.MULTILINE)


def add_twins_line(text: str, baselines: str) -> str:
    """The text with a line for the twins in this folder; unchanged if it has one."""
    pattern = f"{baselines}/{_TWINS}".replace(" ", "[[:space:]]")
    if any(line.split()[:1] == [pattern] for line in text.splitlines()):
        return text
    end = "" if not text or text.endswith("\n") else "\n"
    lfs = " -filter" if _LFS.search(text) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text}{end}{pattern} binary{lfs}{newline}"
