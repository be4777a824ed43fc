"""A package that is installed as far as its version can be read; there is no code of it."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, version: str) -> None:
    """Have `importlib.metadata` find this version of a package, until the test ends."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder)
