"""The paths of the project's docs, examples and baselines in the checkout that has these tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
