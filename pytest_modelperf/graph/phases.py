"""The phases of a generation: the prompt as a whole, and then one token at a time."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """One phase of a generation."""

    PREFILL = "prefill"
    STEP = "step"
