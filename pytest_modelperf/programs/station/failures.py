"""Errors of a user's code as short texts."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

_OUR_FOLDER = str(Path(__file__).parent) + os.sep
_MOST_FRAMES = 6
_MOST_LINES = 40


def failure_text(error: BaseException) -> str:
    """The error with its last frames, without those of the station."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OUR_FOLDER)
    ]
    lines = traceback.format_list(frames[-_MOST_FRAMES:])
    lines += traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip()


def last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_MOST_LINES:])
