"""Documents that are read back by the types of their declarations."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pytest_modelperf.report.codec import JsonObject


def assert_read_back(text: str, declared: JsonObject[Any]) -> None:
    """The type of a declaration accepts a document and has all that is in it."""
    found = msgspec.json.decode(text, type=declared.json_type)
    assert json.loads(msgspec.json.encode(found)) == json.loads(text)
