"""The figures of nodes for other programs are those of the table of layers."""

from __future__ import annotations

import json

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.shown.node_notes import dump_node_data, node_notes
from tests.support.profiles import measured_classifier, measured_function, static_classifier


def test_node_data_has_the_time_of_each_node_that_has_one() -> None:
    profile = measured_classifier()
    data = json.loads(dump_node_data(profile))
    timed = {
        row.static.name or row.static.id: pytest.approx(row.ms, abs=1e-6)
        for row in profile.cases[0].layers
        if row.static is not None and row.ms is not None
    }
    assert {name: each["value"] for name, each in data["results"].items()} == timed
    assert data["name"].endswith(": ms")
    assert [stop["stop"] for stop in data["gradient"]] == [0.0, 0.5, 1.0]


def test_without_a_run_the_values_are_macs() -> None:
    profile = static_classifier()
    data = json.loads(dump_node_data(profile))
    assert data["name"].endswith(": MACs")
    assert sum(each["value"] for each in data["results"].values()) == profile.cases[0].static.macs


def test_notes_say_the_time_the_share_and_in_which_kernel_a_node_runs() -> None:
    profile = measured_classifier()
    notes = node_notes(profile)
    rows = [row for row in profile.cases[0].layers if row.static is not None]
    assert set(notes) == {row.static.id for row in rows if row.static is not None}
    shown = [own["modelperf.share"] for own in notes.values() if "modelperf.share" in own]
    shares = [float(share.removesuffix(" %")) for share in shown]
    assert 0 < sum(shares) <= 100
    for row in rows:
        assert row.static is not None
        own = notes[row.static.id]
        assert ("modelperf.ms" in own) == (row.time is not None)
        assert ("modelperf.runs_in" in own) == (row.runs_in is not None)


def test_a_function_has_no_nodes() -> None:
    with pytest.raises(UsageError, match="has no nodes"):
        dump_node_data(measured_function())
