"""Which machines may run a case, by the names of the case, of the run and of its baseline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.cluster.records import Machine
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.testing.left_out import allowed_names, names_of_kinds, require_this_machine

TAGS = st.sampled_from(["board", "quiet", "desk"])
KEYS = st.sampled_from(["linux-a-2c", "linux-b-4c"])
NAMES = st.lists(TAGS | KEYS, max_size=3, unique=True)


def machine(key: str, *tags: str) -> Machine:
    return Machine(address=f"tcp://{key}", host="host", key=key, tags=tags, versions={})


MACHINES = st.builds(
    lambda key, tags: machine(key, *tags), KEYS, st.lists(TAGS, max_size=2, unique=True)
)


@given(MACHINES, st.none() | TAGS | KEYS, NAMES)
def test_a_case_runs_if_both_its_own_name_and_the_run_allow(
    found: Machine, own: str | None, allowed: list[str]
) -> None:
    names = allowed_names(own, allowed)
    is_own = own is None or found.is_any_of((own,))
    assert found.is_any_of(names) == (is_own and found.is_any_of(allowed))


@given(st.lists(MACHINES, max_size=4), NAMES, st.sets(KEYS))
def test_a_case_runs_on_the_kind_of_its_baseline_if_it_may(
    machines: list[Machine], names: list[str], kinds: set[str]
) -> None:
    chosen = names_of_kinds(names, kinds, machines)
    allowed = [each for each in machines if each.is_any_of(names)]
    of_kind = [each for each in allowed if each.key in kinds]
    assert [each for each in machines if each.is_any_of(chosen)] == (of_kind or allowed)


def test_this_machine_is_known_by_its_key_and_its_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELPERF_TAGS", "board, quiet")
    for name in ("board", "quiet", f"board+{describe_machine().key}"):
        require_this_machine(name)
    message = r"this machine is \S+, board, quiet, and not gpu: .*--modelperf-cluster.*-k 'not gpu'"
    with pytest.raises(UsageError, match=message):
        require_this_machine("gpu")
