"""Every public class of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest_modelperf

# Each engine is sent to a worker alone, so each has an error class of the name that workers know.
SHARED = {"OptionError"}


def test_no_two_public_classes_have_one_name() -> None:
    package = Path(pytest_modelperf.__file__).parent
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(package)))
    assert len(places) > 100
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in SHARED
    } == {}
