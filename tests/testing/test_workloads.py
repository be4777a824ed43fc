"""Workloads as cases of tests: how they are declared, stored, compared and shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytest_modelperf import api
from pytest_modelperf.comparing.records import MEMBER, TOTAL, Comparison, Verdict
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import PROFILE
from pytest_modelperf.profiler.shown.document import dump_profile, read_profile
from tests.support.known import known
from tests.support.project import STATIC, assert_ended, between, collected, read_json, write_table
from tests.support.simulated import simulate
from tests.support.small_models import ones, parse
from tests.support.timed_models import JSON, TIMED, UPDATE

MODEL = "g (float[batch,seq,4] x) => (float[batch,seq,4] y) { [product] y = MatMul(x, w) }"
TABLE = """
[tool.modelperf.models."net.onnx"]
dims = {batch = 1}
workload = [{dims = {seq = 16}, weight = 5}, {dims = {seq = 32}}]
"""
MEMBERS: list[str | Mapping[str, object]] = [
    {"dims": {"batch": 1, "seq": 16}, "weight": 5},
    {"dims": {"batch": 1, "seq": 32}},
]
MORE_WEIGHT = TABLE.replace("weight = 5", "weight = 4")


def write(path: Path, weight: float = 1.0) -> Path:
    path.write_bytes(parse(MODEL, weights={"w": weight * ones(4, 4)}).SerializeToString())
    return path


def write_arrays(folder: Path, *sizes: int) -> None:
    folder.mkdir()
    for size in sizes:
        np.savez(folder / f"s{size}.npz", x=np.ones((1, size, 4), np.float32))


@pytest.fixture
def net(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a model that takes longer for longer inputs, on a clock of its own."""
    write(run.path / "net.onnx")
    run.makeconftest("from tests.support.faulty_plugin import modelperf_register_engines")
    simulate(monkeypatch)
    return run


def message(run: pytest.Pytester, *args: str) -> str:
    """Return the message of a run that cannot collect a table or a test, on one line."""
    result = assert_ended(run.runpytest_inprocess(*STATIC, *args), errors=1)
    return " ".join(between(result.outlines, "ERROR collecting", "short test summary").split())


def test_a_workload_is_one_case_for_each_size_that_is_not_its_own(net: pytest.Pytester) -> None:
    write_table(net, f"{TABLE}cores = [1, 2]")
    assert collected(net) == ["net.onnx::b1-c1-mixed", "net.onnx::b1-c2-mixed"]
    write_table(net, TABLE.replace("{batch = 1}", "{batch = [1, 2]}"))
    assert collected(net) == ["net.onnx::b1-c1-batch1-mixed", "net.onnx::b2-c1-batch2-mixed"]


def test_a_pattern_of_files_is_a_workload_in_a_table_and_in_a_marker(net: pytest.Pytester) -> None:
    write_arrays(net.path / "inputs", 8, 16)
    write_table(net, '[tool.modelperf.models."net.onnx"]\nworkload = "inputs/*.npz"')
    net.makepyfile("""
        import pytest

        @pytest.mark.perf_case("net.onnx", workload="inputs/*.npz", baseline="own.onnx")
        def test_files(modelperf_case): ...
        """)
    assert [name.rpartition("::")[2] for name in collected(net)] == [
        "b1-c1-mixed",
        "test_files[b1-c1-mixed]",
    ]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('workload = "no/*.npz"', "no file matches the workload"),
        ("workload = [{dims = {seq = 16}}]", "a workload has two members or more"),
        ("workload = [{dims = {seq = 16}}, {dims = {seq = 16}}]", "the member seq=16 twice"),
        (
            "workload = [{dims = {seq = 16}}, {dims = {seq = 8}}]\ndims = {seq = 4}",
            "dims and workload both give the dimension seq a size",
        ),
        (
            'workload = [{dims = {seq = 16}}, {dims = {seq = 8}}]\ninput_file = "x.npz"',
            "input_file and workload both say what the model runs on",
        ),
        (
            "workload = [{dims = {seq = 16}}, {dims = {seq = 8}}]\nprompt = 16",
            "prompt and workload both say what the model runs on",
        ),
    ],
)
def test_members_that_do_not_make_a_workload_are_refused(
    net: pytest.Pytester, table: str, words: str
) -> None:
    write_table(net, f'[tool.modelperf.models."net.onnx"]\n{table}')
    assert words in message(net)


def test_a_function_has_no_workload(net: pytest.Pytester) -> None:
    net.makepyfile("""
        import pytest

        def work(): ...

        @pytest.mark.perf_case(work, workload=[{"dims": {"n": 1}}, {"dims": {"n": 2}}])
        def test_work(modelperf): ...
        """)
    assert "workload is about an ONNX model" in message(net)


def test_members_have_one_batch_size(tmp_path: Path) -> None:
    members: list[str | Mapping[str, object]] = [
        {"dims": {"batch": 1, "seq": 8}},
        {"dims": {"batch": 2, "seq": 8}},
    ]
    with pytest.raises(Exception, match="have batch sizes 1, 2"):
        api.profile(write(tmp_path / "net.onnx"), static=True, workload=members)


def test_each_member_is_counted_and_the_mean_is_that_of_a_pass(tmp_path: Path) -> None:
    (case,) = api.profile(write(tmp_path / "net.onnx"), static=True, workload=MEMBERS).cases
    assert case.case.id == "b1-c1-mixed"
    assert case.case.given == {"batch": 1}
    assert case.static.macs == 32 * 16
    assert case.workload is not None
    assert [(m.name, m.weight, m.macs) for m in case.workload.members] == [
        ("seq=16", 5, 16 * 16),
        ("seq=32", 1, 32 * 16),
    ]
    assert case.workload.mean_macs == pytest.approx((5 * 16 + 32) * 16 / 6)


def test_every_member_runs_in_one_session(tmp_path: Path) -> None:
    """The rounds of a real engine, as few as there can be."""
    (case,) = api.profile(write(tmp_path / "net.onnx"), workload=MEMBERS, max_seconds=0.2).cases
    assert case.workload is not None
    assert case.workload.total_ms is not None
    assert all(member.p50 is not None for member in case.workload.members)
    assert case.measured is not None
    assert {place for r in case.measured.rounds for place in r.block.mix.turns} == {0, 1}  # type: ignore[union-attr]


def test_a_run_names_the_slower_member(net: pytest.Pytester) -> None:
    write_table(net, TABLE.replace("net.onnx", "*.onnx"))
    write(net.path / "net_largest110.onnx", weight=2.0)
    against = f"--modelperf-against={net.path / 'net.onnx'}"
    result = assert_ended(net.runpytest_inprocess(*TIMED, against, "net_largest110.onnx"), failed=1)
    result.stdout.re_match_lines([r"why: seq=32: \+\d+\.\d % \(\+.* … \+.* %\)"])


def test_an_unchanged_workload_passes(net: pytest.Pytester) -> None:
    write_table(net, TABLE)
    assert net.runpytest_inprocess(*TIMED, UPDATE).ret == 0
    assert net.runpytest_inprocess(*TIMED, JSON).ret == 0
    (case,) = read_json(net.path / "run.json")["cases"]
    assert case["verdict"] == "passed"


def test_another_workload_is_not_compared_and_the_run_says_so(net: pytest.Pytester) -> None:
    write_table(net, TABLE)
    assert net.runpytest_inprocess(*TIMED, UPDATE).ret == 0
    write_table(net, MORE_WEIGHT)
    result = net.runpytest_inprocess(*TIMED)
    said = " ".join(" ".join(result.outlines).split())
    assert (
        "recorded on other inputs: seq=16:weight 5, seq=32:weight 1. Now: seq=16:weight 4, "
        "seq=32:weight 1. Give the same or record it again"
    ) in said
    assert "record what is new with" not in said


def test_a_kept_profile_has_the_times_of_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    extensions = ["tests.support.faulty_plugin"]
    words: dict[str, Any] = {"workload": MEMBERS, "engine": "timed", "extensions": extensions}
    made = api.profile(write(tmp_path / "net.onnx"), max_seconds=30, **words)
    (read,) = read_profile(msgspec.json.decode(dump_profile(made), type=PROFILE.json_type)).cases
    (case,) = made.cases
    assert case.workload is not None
    assert read.case == case.case
    assert read.workload is not None
    assert read.workload.total_ms == pytest.approx(case.workload.total_ms)
    assert [m.share for m in read.workload.members] == [m.share for m in case.workload.members]


def compare(folder: Path, after: str, **words: object) -> Comparison:
    extensions = ["tests.support.faulty_plugin"]
    return api.compare(
        write(folder / "net.onnx"),
        write(folder / after, weight=2.0),
        workload=MEMBERS,
        engine="timed",
        extensions=extensions,
        max_seconds=30,
        **words,  # type: ignore[arg-type]
    )


def test_both_sides_see_the_members_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    (case,) = compare(tmp_path, "other.onnx").cases
    assert case.verdict is Verdict.PASSED
    total = known(case.metric(TOTAL))
    assert total.ratio == pytest.approx(1.0, abs=0.01)
    # Five inferences of 0.2 ms and one of 0.4 ms, or up to a hundredth more.
    assert total.before == pytest.approx(1.4, rel=0.02)


def test_a_member_that_takes_a_tenth_longer_fails_the_case_and_is_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    (case,) = compare(tmp_path, "net_largest110.onnx").cases
    assert case.verdict is Verdict.REGRESSED
    member, other = case.metric(f"{MEMBER}seq=32"), case.metric(f"{MEMBER}seq=16")
    assert known(member).ratio == pytest.approx(1.1, abs=0.02)
    assert known(other).verdict is Verdict.PASSED
    assert case.reasons[0].startswith("seq=32: +")
    assert not known(case.metric("latency_p50")).gated


def paced(folder: Path, workload: Mapping[str, object]) -> Measurement:
    """The model of 0.2 ms with inferences that arrive in this way."""
    (case,) = api.profile(
        write(folder / "net.onnx"),
        dims={"batch": 1, "seq": 16},
        workload=workload,
        engine="timed",
        extensions=["tests.support.faulty_plugin"],
        max_seconds=1,
    ).cases
    return known(case.measured)


def test_inferences_that_have_time_are_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    found = paced(tmp_path, {"every_ms": 1})
    assert found.late == 0.0
    assert found.latency.p50_ms == pytest.approx(0.2, rel=0.02)


def test_a_time_counts_from_the_arrival_so_a_queue_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    found = paced(tmp_path, {"every_ms": 0.15})
    assert found.late == 1.0
    times = found.rounds[0].times_ns
    assert times[-1] > times[0] + (len(times) - 1) * 45_000


def test_a_budget_holds_for_inferences_that_arrive(net: pytest.Pytester) -> None:
    """Alone an inference takes 0.2 ms, and with the wait for those before it longer."""
    pace = "dims = {batch = 1, seq = 16}\nbudget = {p95_ms = 0.3}\nworkload = {every_ms = %s}"
    for every_ms, failed in (("1", 0), ("0.15", 1)):
        write_table(net, f'[tool.modelperf.models."net.onnx"]\n{pace % every_ms}')
        assert_ended(net.runpytest_inprocess(*TIMED, UPDATE), passed=1 - failed, failed=failed)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{}", "takes a table such as {every_ms = 20}"),
        ("{every_ms = 0}", "every_ms takes milliseconds above 0, not 0"),
        ("{every_ms = true}", "every_ms takes milliseconds above 0, not true"),
        ("{streams = 0}", "streams takes whole numbers of 1 or more, not 0"),
        ("{every = 3}", "there is no key 'every'"),
        ("{members = []}", "members"),
    ],
)
def test_a_wrong_pace_is_refused(net: pytest.Pytester, written: str, words: str) -> None:
    write_table(net, f'[tool.modelperf.models."net.onnx"]\nworkload = {written}')
    result = net.runpytest_inprocess(*STATIC)
    assert result.ret != 0
    assert words in " ".join(" ".join([*result.outlines, *result.errlines]).split())
