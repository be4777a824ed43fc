"""Kept profiles as JSON: how one is written and read, and the list of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_modelperf.files.documents import ContradictionError, DocumentFile, shortened
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.document import profile_document, read_profile
from pytest_modelperf.profiles.records import NAMED, PROFILE_LIST, NamedProfile, ProfileList
from pytest_modelperf.report.document import SCHEMA, dump_document
from pytest_modelperf.roofline.records import ROOFLINE, Roofline, read_roofline, rooflines_to_json
from pytest_modelperf.text.escaping import printable


def dump_named(named: NamedProfile) -> str:
    """Return the content of the file of a kept profile."""
    profile = profile_document(named.profile, rooflines_to_json(named.rooflines))
    return NAMED.dump(named, profile=profile)


def read_named(data: bytes, file: DocumentFile) -> NamedProfile:
    """Read the kept profile in a file, which is named after it."""
    document = file.parse(data)
    file.check_schema(document, SCHEMA)
    profile = document.get("profile")
    if isinstance(profile, dict):
        # A profile of a newer schema need not have the keys of this one.
        file.check_schema(profile, SCHEMA, "profile")
    found = file.convert(document, NAMED.json_type)
    if found.name != file.path.stem:
        raise file.error(
            f'the name is "{shortened(found.name)}", but the file is {printable(file.path.name)}',
            "name",
            "Name the file after the profile that is in it.",
        )
    if found.date is None or found.date.utcoffset():
        raise file.error("expected a time in UTC such as 2026-01-31T12:00:00Z", "date")
    with _contradictions(file, "profile"):
        made = read_profile(found.profile)
    return NamedProfile(
        name=found.name,
        date=found.date,
        profile=made,
        rooflines=_read_rooflines(found.profile, made, file),
    )


def _read_rooflines(
    found: Any,  # noqa: ANN401  # an object of `PROFILE`
    profile: Profile,
    file: DocumentFile,
) -> dict[str, Roofline]:
    rooflines = {}
    for index, (kept, case) in enumerate(zip(found.cases, profile.cases, strict=True)):
        if kept.roofline is None:
            continue
        place = f"profile.cases[{index}].roofline"
        roofline = file.convert(kept.roofline, ROOFLINE.json_type, place)
        # If several layers have one id, it means the first, as it does for fused layers.
        layers = () if case.counted is None else reversed(case.counted.layers)
        with _contradictions(file, place):
            names = {layer.id: layer.name for layer in layers}
            rooflines[case.case.id] = read_roofline(roofline, names)
    return rooflines


@contextmanager
def _contradictions(file: DocumentFile, place: str) -> Iterator[None]:
    """Turn a ContradictionError at `place` into an error of the file."""
    try:
        yield
    except ContradictionError as error:
        raise file.error(error.problem, f"{place}.{error.place}") from None


def dump_profile_list(found: ProfileList) -> str:
    document = PROFILE_LIST.of(found)
    for named, entry in zip(found.profiles, document["profiles"], strict=True):
        entry["is_older_model"] = found.is_of_older_model(named)
    return dump_document(document)
