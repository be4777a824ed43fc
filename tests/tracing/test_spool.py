"""Records come back in order, however they were added."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_modelperf.tracing import spool as module
from pytest_modelperf.tracing.spool import Spool
from tests.support.full_disk import room_for

PLACES = st.tuples(st.integers(0, 50), st.integers(-50, 0))


def small_spool(folder: Path) -> Spool:
    """A spool that writes after a few records, and reads a few at once."""
    return Spool(folder / "spool", run_records=7, piece_records=3)


@given(places=st.lists(PLACES, max_size=60), cut=st.integers(0, 60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_are_read_in_order_as_often_as_wanted(
    tmp_path: Path, places: list[tuple[int, int]], cut: int
) -> None:
    records = [(*place, number, {"x": [number]}) for number, place in enumerate(places)]
    spool = small_spool(tmp_path)
    for record in records[:cut]:
        spool.add(record)
    assert list(spool.read()) == sorted(records[:cut], key=lambda record: record[:3])
    for record in records[cut:]:
        spool.add(record)
    expected = sorted(records, key=lambda record: record[:3])
    assert list(spool.read()) == expected
    first, second = spool.read(), spool.read()
    assert list(zip(first, second, strict=True)) == [(record, record) for record in expected]
    spool.close()


def test_events_lost_to_a_full_disk_are_counted(tmp_path: Path) -> None:
    """The program that is recorded goes on, and so does the recording when there is room again."""
    spool = small_spool(tmp_path)
    for number in range(7):
        spool.add((number, 0, number))
    with room_for((tmp_path / "spool").stat().st_size):
        for number in range(7, 20):
            spool.add((number, 0, number))
    spool.add((20, 0, 20))
    found = [record[0] for record in spool.read()]
    spool.close()
    assert found == [*range(7), *range(14, 21)]
    assert spool.lost == 7
    assert spool.problem is not None


def test_nothing_is_lost_between_threads(tmp_path: Path) -> None:
    spool = small_spool(tmp_path)
    together = threading.Barrier(4)

    def add(thread: int) -> None:
        together.wait()
        for number in range(1000):
            spool.add((number, 0, 1000 * thread + number))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(spool.read())
    spool.close()
    assert sorted(record[2] for record in found) == list(range(4000))
    assert all(a[:3] < b[:3] for a, b in itertools.pairwise(found))


def test_records_in_memory_are_few(tmp_path: Path) -> None:
    spool = small_spool(tmp_path)
    for number in range(5 * module.RUN_RECORDS):
        spool.add((number, 0, number))
        assert len(spool._pending) < module.RUN_RECORDS
    spool.close()
