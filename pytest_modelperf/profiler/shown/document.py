"""A profile as JSON: everything that was counted and measured, raw samples included.

`docs/json.md` says what each key means. `document_reader` makes a profile of a document again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_modelperf.profiler.records import PROFILE, Profile
from pytest_modelperf.report.document import Json, dump_document


def dump_profile(profile: Profile, rooflines: Mapping[str, Json] | None = None) -> str:
    """The profile as JSON text; `rooflines` has the roofline of a case by its id, as JSON."""
    return dump_document(profile_document(profile, rooflines))


def profile_document(
    profile: Profile, rooflines: Mapping[str, Json] | None = None
) -> dict[str, Any]:
    """The document of a profile as plain values."""
    known = rooflines or {}
    document = PROFILE.of(profile)
    for case in document["cases"]:
        case["roofline"] = known.get(case["id"])
    return document
