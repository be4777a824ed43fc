"""Files that are cut off, damaged, of another kind, locked, or on a disk that takes no more.

Baselines, named profiles and peaks are kept; other profiles and `pyproject.toml` are read as well.
Whatever is wrong with a file is reported, and the program does not wait for it.
"""

from __future__ import annotations

import copy
import datetime as dt
import errno
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import pytest_modelperf
from pytest_modelperf import trace
from pytest_modelperf.baselines.changes import plan_removal, plan_update
from pytest_modelperf.baselines.document import read_machine, read_model, write_machine, write_model
from pytest_modelperf.baselines.records import UpdatePlan
from pytest_modelperf.baselines.report import plan_table
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.cli import main
from pytest_modelperf.errors import BaselineError, ModelPerfError, OutputError, UsageError
from pytest_modelperf.files.documents import DocumentFile, read_table
from pytest_modelperf.files.output import written_text
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome
from pytest_modelperf.profiler.shown.tables.layer_columns import MEASURED_COLUMNS
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiles.report_pairs import side_by_side_report
from pytest_modelperf.profiles.side_by_side import put_side_by_side
from pytest_modelperf.profiles.store import ProfileStore, dump_named, read_named
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.report.model import Report, Rows
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.roofline.peaks import find_peaks, keep_peaks
from pytest_modelperf.tracing.files.opening import read_stored_profile
from tests.baselines.test_store import MACHINE_BYTES, MODEL_BYTES, Refusing, snapshot_files
from tests.profiles.test_profiles import DATE, DOCUMENT, PLACES, named, timed
from tests.roofline.test_store import KEY, PEAKS, entry
from tests.support.baseline_writer import MACHINE, NAME, make_recording
from tests.support.checkout import ROOT
from tests.support.command import run as run_command
from tests.support.full_disk import room_for
from tests.support.known import known
from tests.support.ort_profiles import inference, kernel, write_profile
from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    write_dense,
    write_table,
)
from tests.support.rendered import render_named

UPDATE = "--modelperf-update-baseline"
KEPT = DocumentFile(Path("baseline.json"))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel must trace system calls")


pytestmark = pytest.mark.usefixtures("no_waiting")


def spawn(*arguments: str) -> str:
    """Return the output of a Python program of these tests."""
    # The package may be installed elsewhere than these tests are.
    places = [ROOT, Path(pytest_modelperf.__file__).parents[1]]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@LINUX
def test_a_writer_killed_at_any_system_call_leaves_old_or_new_baselines(tmp_path: Path) -> None:
    """They can be read, and the next writer completes them and leaves nothing of the killed one."""
    printed = spawn("-m", "tests.faults.system_calls", str(tmp_path))
    scenarios = [json.loads(line) for line in printed.splitlines()]
    assert len(scenarios) == 2
    assert sum(scenario["kills"] for scenario in scenarios) >= 120
    assert all(scenario["states"] >= 8 for scenario in scenarios)
    assert [scenario["problems"] for scenario in scenarios] == [[], []]


@pytest.fixture
def recorded(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with the baseline of `dense.onnx`, which was made wider since."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    write_table(run, '[tool.modelperf.models."dense.onnx"]')
    run.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=1)
    write_dense(run.path / "dense.onnx", width=6)
    return run


@pytest.mark.slow
@LINUX
def test_a_run_killed_at_any_system_call_of_its_writing_leaves_what_the_next_one_can_use(
    recorded: pytest.Pytester,
) -> None:
    done = recorded.runpytest_subprocess(*STATIC, UPDATE, "-p", "tests.faults.system_calls")
    done.assert_outcomes(passed=1)
    written = snapshot_names(recorded.path / "baselines")
    killed = recorded.path / "killed"
    assert int((killed / "kills").read_text()) >= 30
    verdicts: list[str] = []
    for state in sorted(path for path in killed.iterdir() if path.is_dir()):
        where = f"--modelperf-baseline-dir={state}"
        checked = recorded.runpytest_inprocess(*STATIC, where)
        assert_says_no_internals(checked)
        assert not [*state.rglob(".*"), *state.rglob("twin.next.onnx")]
        outcomes = checked.parseoutcomes()
        verdicts += outcomes
        # Six columns are more than the old baseline has, and what the new one has.
        assert outcomes in ({"failed": 1}, {"passed": 1})
        assert ("regressed" in checked.stdout.str()) == ("failed" in outcomes)
        recorded.runpytest_inprocess(*STATIC, UPDATE, where).assert_outcomes(passed=1)
        assert snapshot_names(state) == written
    assert {"failed", "passed"} <= set(verdicts)


def snapshot_names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.slow
def test_files_of_another_run_between_the_plan_of_a_run_and_its_writing_are_kept(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbatch_size = [1, 8]')
    write = BaselineStore.apply

    def write_after_another(store: BaselineStore, plan: UpdatePlan) -> UpdatePlan:
        monkeypatch.setattr(BaselineStore, "apply", write)
        assert_ended(run.runpytest_subprocess(*STATIC, UPDATE, "dense.onnx::b8-c1"), passed=1)
        return write(store, plan)

    monkeypatch.setattr(BaselineStore, "apply", write_after_another)
    run.runpytest_inprocess(*STATIC, UPDATE, "dense.onnx::b1-c1").assert_outcomes(passed=1)
    stored = known(BaselineStore(run.path / "baselines").read("dense"))
    assert [case.id for case in stored.model.cases] == ["b1-c1", "b8-c1"]
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=2)


_HOLDER = """
import sys, time
from pathlib import Path
from pytest_modelperf.files.store import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_free_as_soon_as_its_holder_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    waits = []

    def kill(seconds: float) -> None:
        waits.append(seconds)
        holder.kill()
        holder.wait()

    try:
        assert known(holder.stdout).readline() == "held\n"
        # A process that finds the lock held sleeps before it looks again.
        monkeypatch.setattr(time, "sleep", kill)
        store = BaselineStore(tmp_path)
        store.apply(plan_update(None, make_recording()))
    finally:
        holder.kill()
        holder.communicate()
    assert len(waits) == 1
    assert store.names() == (NAME,)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models and a profile of ONNX Runtime, to make reports of."""
    folder = tmp_path_factory.mktemp("reported")
    write_dense(folder / "old.onnx")
    write_dense(folder / "new.onnx", width=6)
    write_profile(folder / "ort.json", [kernel("conv", 1, 2), inference(0, 9)])
    return folder


_REPORTS = [
    *(("profile", "--static", "old.onnx", f"--{kind}") for kind in ("json", "csv", "html")),
    *(
        ("compare", "--static", "old.onnx", "new.onnx", f"--{kind}")
        for kind in ("json", "html", "markdown")
    ),
    *(("trace", "ort.json", f"--{kind}") for kind in ("json", "csv", "chrome")),
    ("profiles", "old.onnx", "--json"),
]


@pytest.mark.parametrize("arguments", _REPORTS, ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_report_that_finds_no_room_leaves_the_older_one_and_nothing_else(
    reported: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str]
) -> None:
    """Half of one could be taken for all of it."""
    monkeypatch.chdir(reported)
    target = Path("report")
    target.write_text("an older one")
    names = snapshot_names(reported)
    with room_for(20):
        done = run_command(*arguments, str(target))
    assert done.exit_code == 2
    assert done.err == "Error: cannot write report: File too large.\n"
    assert target.read_text() == "an older one"
    assert snapshot_names(reported) == names
    assert run_command(*arguments, str(target)).exit_code in {0, 1}
    assert target.stat().st_size > 20


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "--static", "old.onnx"),
        ("trace", "ort.json", "--chrome", "-"),
        ("--help",),
        ("profile", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_standard_output_that_takes_no_more_is_reported(
    reported: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
) -> None:
    monkeypatch.chdir(reported)
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115  # closing it fails
    with redirect_stdout(full), pytest.raises(SystemExit) as stopped:
        main(arguments, prog_name="modelperf")
    with suppress(OSError):
        full.close()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: cannot write ")
    assert os.strerror(errno.ENOSPC) in error
    assert "Traceback" not in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "--static", "missing.onnx"),
        ("profile", "--no-such-option"),
        ("no-such-command",),
    ],
    ids=" ".join,
)
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(arguments: Sequence[str]) -> None:
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115  # closing it fails
    with redirect_stderr(full), pytest.raises(SystemExit) as stopped:
        main(arguments, prog_name="modelperf")
    with suppress(OSError):
        full.close()
    assert stopped.value.code == 2


def test_an_interrupted_report_leaves_nothing_and_targets_that_are_not_files_stay(
    tmp_path: Path,
) -> None:
    for target in (tmp_path / "report", Path(os.devnull)):
        with pytest.raises(KeyboardInterrupt), written_text(target) as file:  # noqa: PT012  # half
            file.write("half of it")
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    assert Path(os.devnull).is_char_device()


def test_a_trace_without_room_is_reported_and_none_is_left_half_written(tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    recording = trace(target)
    recording.__enter__()
    with room_for(20), pytest.raises(OutputError, match=r"cannot write .*trace\.json: File too l"):
        recording.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def profiles(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles", "classifier", "classifier.onnx")


def test_any_failing_call_while_a_profile_is_kept_leaves_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = named(timed(5)), named(timed(6), date=DATE + dt.timedelta(days=1))
    errors = []
    for at in range(100):
        store = ProfileStore(tmp_path / str(at), "classifier", "classifier.onnx")
        store.keep(old)
        with monkeypatch.context() as patch:
            refusing = Refusing(patch, at)
            try:
                store.keep(new, replaces=True)
            except ModelPerfError as error:
                errors.append(str(error))
            if refusing.made <= at:
                break
        assert [path.name for path in store.path.iterdir()] == ["baseline.json"]
        assert store.read("baseline").date in {old.date, new.date}
        store.keep(new, replaces=True)
        assert store.read("baseline").date == new.date
        assert snapshot_names(store.root) == ["classifier", "classifier/baseline.json"]
    assert len(errors) >= 8
    assert all(os.strerror(errno.ENOSPC) in message for message in errors)


def test_without_room_for_temporary_files_a_case_is_not_measured_and_says_why(
    reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/modelperf-1")

    monkeypatch.chdir(reported)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    for arguments in (
        ("profile", "old.onnx"),
        ("compare", "old.onnx", "new.onnx"),
        ("whatif", "old.onnx", "--prune", "0.5"),
    ):
        done = run_command(*arguments)
        assert done.exit_code == 3, done.err
        printed = " ".join((done.out + done.err).split())
        assert (
            "the temporary folder /full/modelperf-1 cannot be made: "
            f"{os.strerror(errno.ENOSPC)}. Make room, or set TMPDIR to another folder."
        ) in printed
        assert "Traceback" not in printed


def test_a_folder_of_baselines_without_access_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BaselineStore(tmp_path)
    store.apply(plan_update(None, make_recording()))

    def refuse(path: Path, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        for reading in (store.names, lambda: store.read(NAME)):
            with pytest.raises(
                BaselineError, match=r"cannot be read as a folder.*Permission denied"
            ):
                reading()
    with monkeypatch.context() as patch:
        # Its content matters when it is read: a model without its baseline would be `new`.
        patch.setattr(Path, "exists", refuse)
        assert store.names() == (NAME,)


def test_a_read_only_folder_of_profiles_is_reported_before_anything_is_measured(
    profiles: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.keep(named(timed(5)))
    before = snapshot_files(profiles.root)
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:  # noqa: ANN401  # as os.open has it
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match=r"cannot be written\. Give another --profile-dir"):
        profiles.check_writable()
    monkeypatch.setattr(os, "open", read_only)
    changes: tuple[Callable[[], object], ...] = (
        lambda: profiles.keep(named(timed(6)), replaces=True),
        lambda: profiles.remove("baseline"),
    )
    for change in changes:
        with pytest.raises(OutputError, match=r"Read-only file system\. .*--profile-dir"):
            change()
    assert snapshot_files(profiles.root) == before


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    # The whole path may be longer than one of a socket can be.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _nothing(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


def _large_object(path: Path) -> None:
    path.write_text('{"schema": ')
    os.truncate(path, 10 << 30)


FAULTS: Mapping[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": _pipe,
    "a socket": _socket,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "10 GiB of nothing": _nothing,
    "an object of 10 GiB": _large_object,
    "zeros, as after a power cut": lambda path: path.write_bytes(bytes(4096)),
    "a byte order mark": lambda path: path.write_bytes(b'\xef\xbb\xbf{"schema": 1}'),
    "UTF-16": lambda path: path.write_bytes('{"schema": 1}'.encode("utf-16")),
    "no text": lambda path: path.write_bytes(random.Random(0).randbytes(5000)),
    "deep lists": lambda path: path.write_text("[" * 200_000),
    "deep objects": lambda path: path.write_text('{"a":' * 200_000),
    "an endless number": lambda path: path.write_text('{"schema": 1%s}' % ("0" * 100_000)),
    "a lone surrogate": lambda path: path.write_text('{"schema": "\\ud800"}'),
    "a key twice": lambda path: path.write_text('{"schema": 1, "schema": 1}'),
}  # fmt: skip


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return FAULTS[request.param]


def put(fault: Callable[[Path], object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fault(path)


def identity_of(path: Path) -> tuple[int, ...]:
    """What changes if a file is touched; reading it changes the time of its last access."""
    found = path.lstat()
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns)


@pytest.mark.parametrize("name", ["model.json", "twin.onnx", f"{MACHINE.key}.json"])
def test_anything_in_the_place_of_a_baseline_file_is_reported_and_left_alone(
    tmp_path: Path, fault: Callable[[Path], object], name: str
) -> None:
    store = BaselineStore(tmp_path)
    store.apply(plan_update(None, make_recording()))
    plan = plan_update(store.read(NAME), make_recording(version=2))
    path = tmp_path / NAME / name
    put(fault, path)
    before = identity_of(path)
    for reading in (lambda: store.read(NAME), lambda: store.apply(plan)):
        with pytest.raises(BaselineError) as refused:
            reading()
        assert str(path) in str(refused.value)
        assert str(refused.value).isprintable()
    assert identity_of(path) == before


def test_anything_in_the_place_of_a_kept_profile_is_reported_and_can_be_replaced(
    profiles: ProfileStore, fault: Callable[[Path], object]
) -> None:
    path = profiles.path / "baseline.json"
    put(fault, path)
    contents = profiles.read_all()
    assert contents.kept == ()
    (unusable,) = contents.unusable
    assert str(path) in unusable.reason
    assert unusable.reason.isprintable()
    with pytest.raises(UsageError):
        profiles.read("baseline")
    if path.is_dir():
        with pytest.raises(OutputError, match="Is a directory"):
            profiles.keep(named(timed(5)), replaces=True)
        return
    profiles.keep(named(timed(5)), replaces=True)
    assert profiles.read("baseline").date == DATE


def test_peaks_are_measured_again_with_anything_else_in_their_place(
    tmp_path: Path, fault: Callable[[Path], object]
) -> None:
    path = tmp_path / f"{KEY}.json"
    put(fault, path)
    found = find_peaks(tmp_path, KEY)
    assert found.peaks == ()
    assert str(path) in known(found.note)
    if path.is_dir():
        assert str(keep_peaks(tmp_path, PEAKS)).endswith(" not kept")
        return
    assert keep_peaks(tmp_path, PEAKS) is None
    assert find_peaks(tmp_path, KEY).peaks == (PEAKS,)


def test_any_bytes_as_a_trace_are_refused_or_read(
    tmp_path: Path, fault: Callable[[Path], object]
) -> None:
    path = tmp_path / "trace.json"
    put(fault, path)
    done = run_command("trace", str(path), "--chrome", str(tmp_path / "out.json"))
    assert done.exit_code == 2
    assert str(path) in done.err
    assert "Traceback" not in done.err


def test_anything_in_the_place_of_the_settings_is_reported(
    tmp_path: Path, fault: Callable[[Path], object]
) -> None:
    path = tmp_path / "pyproject.toml"
    put(fault, path)
    with pytest.raises(UsageError, match=r"pyproject\.toml (is|has|cannot be)"):
        read_table(path)


def test_settings_nested_too_deeply_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.modelperf]\nmodels = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"nested|not valid TOML"):
        read_table(path)


# Around the depth at which each version of Python gives up: it varies with that of the reader.
_DEPTHS = (10, 100, *range(900, 1010, 3), 2000, 5000, 20_000, 50_000, 500_000)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_no_depth_of_nesting_is_more_than_an_error(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "p.json"
    for depth in _DEPTHS:
        closing = "]" if opening == "[" else "}"
        deep = f"{opening * depth}1{closing * depth}"
        for data, old in ((MODEL_BYTES, '"a note"'), (MACHINE_BYTES, '"1.31.1"')):
            read = read_model if data is MODEL_BYTES else read_machine
            with pytest.raises(BaselineError):
                read(data.replace(old.encode(), deep.encode(), 1), path)
        kept = json.dumps(DOCUMENT).replace('"notes": []', f'"notes": {deep}', 1)
        with pytest.raises(BaselineError, match=r"profile|nested"):
            read_named(kept.encode(), KEPT)
        path.write_text(json.dumps({"schema": 1, "cases": []}).replace("[]", deep))
        with pytest.raises(UsageError):
            read_stored_profile(path)
        path.write_text(f"[{deep},\n{kernel('a', 1, 2)},\n{inference(0, 9)}]")
        assert run_command("trace", str(path)).exit_code in {0, 2}


def test_a_twin_that_lacks_a_byte_or_has_another_one_is_refused(tmp_path: Path) -> None:
    # A run without a fitting twin looks again, for another may be writing it.
    store = BaselineStore(tmp_path, attempts=2)
    store.apply(plan_update(None, make_recording()))
    path = tmp_path / NAME / "twin.onnx"
    whole = path.read_bytes()
    generator = random.Random(1)
    for place in range(len(whole)):
        other = bytearray(whole)
        other[place] ^= generator.randrange(1, 256)
        for data in (whole[:place], bytes(other), whole[:place] + whole[place + 1 :]):
            path.write_bytes(data)
            with pytest.raises(BaselineError, match=r"twin\.onnx is not the one"):
                store.read(NAME)


def test_a_kept_profile_cut_at_any_byte_is_refused_with_its_line() -> None:
    """But for the last line break, without which nothing is missing."""
    failed = CaseProfile(Case(1, 1), None, None, Outcome.FAILED, "it crashed")
    data = dump_named(named(replace(timed(5), cases=(failed,)))).encode()
    assert read_named(data[:-1], KEPT).name == "baseline"
    for length in range(len(data) - 1):
        line = data[:length].count(b"\n") + 1
        with pytest.raises(BaselineError, match=f"line {line}: "):
            read_named(data[:length], KEPT)


def changed(document: object, place: Sequence[str | int], value: object) -> Any:  # noqa: ANN401  # JSON
    """A copy of a document with another value at one place."""
    made = copy.deepcopy(document)
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


def value_at(document: object, place: Sequence[str | int]) -> object:
    inner: Any = document
    for key in place:
        inner = inner[key]
    return inner


_KINDS: tuple[object, ...] = (None, True, 7, 0.5, "text", [], {}, [[]])
_BEYOND = (-1, 2**63, 10**30, float("inf"), float("nan"))


def is_first(place: Sequence[str | int]) -> bool:
    """Whether it is in the first item of each list: the others are alike."""
    return all(key == 0 for key in place if isinstance(key, int))


def test_any_value_of_a_kept_profile_of_another_type_is_refused_with_its_place() -> None:
    checked = 0
    for place in filter(is_first, PLACES):
        name = ".".join(map(str, place))
        checked += 1
        refused = []
        others: tuple[object, ...] = ("text", [[]], -1, 10**30)
        for value in others:
            data = json.dumps(changed(DOCUMENT, place, value)).encode()
            with suppress(BaselineError):
                read_named(data, KEPT)
                continue
            refused.append(value)
        # One or two may be what is expected there: a text, or numbers that are not bounded.
        assert len(refused) >= 2, name
    assert checked > 100


_STEERING = "x\ud800\x1b[2J\u202e\n::error::"


def texts_of(document: object) -> Iterator[tuple[str | int, ...]]:
    """The place of every text of a document."""
    return (place for place, value in values_of(document) if isinstance(value, str))


def objects_of(document: object) -> Iterator[tuple[str | int, ...]]:
    """The place of every object in it that has anything."""
    return (place for place, value in values_of(document) if value and isinstance(value, dict))


def values_of(document: object) -> Iterator[tuple[tuple[str | int, ...], object]]:
    stack: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    while stack:
        place, value = stack.pop()
        yield place, value
        entries = value.items() if isinstance(value, dict) else ()
        stack += [
            ((*place, key), inner)
            for key, inner in (enumerate(value) if isinstance(value, list) else entries)
        ]


def with_steering_text(document: Any) -> Iterator[Any]:  # noqa: ANN401  # JSON
    """A copy for each text in it that is another one, and for each key."""
    for place in filter(is_first, texts_of(document)):
        yield changed(document, place, _STEERING)
    for place in filter(is_first, objects_of(document)):
        inner = value_at(document, place)
        assert isinstance(inner, dict)
        renamed = {(_STEERING if key == min(inner) else key): value for key, value in inner.items()}
        yield changed(document, place, renamed) if place else renamed


def assert_harmless(text: str) -> None:
    """Assert that it can be written, and that no terminal obeys it."""
    text.encode("utf-8")
    assert all(line.isprintable() for line in text.splitlines())


def test_no_text_of_a_baseline_breaks_what_is_shown_or_written_of_it(tmp_path: Path) -> None:
    before = known(plan_update(None, make_recording()).after)
    kept = 0
    for data, read, write in (
        (MODEL_BYTES, read_model, write_model),
        (MACHINE_BYTES, read_machine, write_machine),
    ):
        document = json.loads(data)
        path = tmp_path / f"{MACHINE.key}.json"
        for made in with_steering_text(document):
            try:
                found: Any = read(json.dumps(made).encode(), path)
            except BaselineError as error:
                assert_harmless(str(error))
                continue
            assert read(write(found), path) == found
            kept += 1
            if data is MODEL_BYTES:
                stored = replace(before, model=found)
                for plan in (
                    plan_removal(stored, None),
                    plan_update(stored, make_recording(version=2)),
                ):
                    report = Report(title="", blocks=(Rows(plan_table(plan)),))
                    assert_harmless(render_report(report, TextStyle()))
    assert kept >= 10


def test_no_text_of_a_kept_profile_breaks_what_is_shown_of_it() -> None:
    view, style = LayerView(MEASURED_COLUMNS, "ms", 20), TextStyle()
    kept = 0
    for made in with_steering_text(DOCUMENT):
        data = json.dumps(made).encode()
        try:
            found = read_named(data, KEPT)
        except BaselineError as error:
            assert_harmless(str(error))
            continue
        assert_harmless(render_named(found, view, style))
        assert_harmless(
            render_report(side_by_side_report(put_side_by_side(found, named(timed(6))), 20), style)
        )
        kept += 1
    assert kept >= 10


_PEAKS_DOCUMENT = {"schema": SCHEMA, "peaks": [entry()]}
_PEAKS_PLACES = [
    *((key,) for key in _PEAKS_DOCUMENT),
    ("peaks", 0),
    *(("peaks", 0, key) for key in entry()),
    ("peaks", 0, "bandwidths", 0),
    ("peaks", 0, "bandwidths", 0, "bytes"),
    ("peaks", 0, "bandwidths", 0, "bytes_per_second"),
    ("peaks", 0, "macs_per_second", "float32"),
]


@pytest.mark.parametrize("place", _PEAKS_PLACES, ids=lambda place: ".".join(map(str, place)))
def test_peaks_with_any_other_value_are_measured_again_or_can_be_used(
    tmp_path: Path, place: Sequence[str | int]
) -> None:
    path = tmp_path / f"{KEY}.json"
    for value in (*_KINDS, *_BEYOND, 1e308, 5e-324, 10**400, _STEERING):
        path.write_text(json.dumps(changed(_PEAKS_DOCUMENT, place, value)))
        found = find_peaks(tmp_path, KEY)
        # Nothing is kept of a machine on which nothing was measured.
        assert found.note is not None or found.peaks or value in ([], {})
        assert found.note is None or not found.peaks
        for peaks in found.peaks:
            assert all(rate > 0 for rate in peaks.macs_per_second.values())
            assert all(each.bytes_per_second > 0 for each in peaks.bandwidths)


_STORED = DOCUMENT["profile"]
_STORED_PLACES = [place[1:] for place in PLACES if place[0] == "profile" and len(place) > 1]


@settings(max_examples=40)
@given(
    place=st.sampled_from(_STORED_PLACES),
    value=st.sampled_from([*_KINDS, *_BEYOND, 10**400, 5e-324, _STEERING]),
)
@example(("cases", 0, "layers", 0, "macs"), 10**400)
@example(("cases", 0, "layers", 0, "name"), _STEERING)
@example(("model", "name"), _STEERING)
@example(("cases", 0, "id"), _STEERING)
def test_a_stored_profile_of_which_any_value_is_another_is_refused_or_summed_up(
    tmp_path_factory: pytest.TempPathFactory, place: Sequence[str | int], value: object
) -> None:
    folder = tmp_path_factory.mktemp("stored")
    path = folder / "profile.json"
    path.write_text(json.dumps(changed(_STORED, place, value)))
    targets = [f"--{kind}={folder / kind}" for kind in ("json", "csv", "chrome")]
    done = run_command("trace", str(path), "--by", "layer", *targets)
    assert done.exit_code in {0, 2}
    assert_harmless(done.out + done.err)


@pytest.mark.parametrize("key", ["ts", "dur", "tid", "pid"])
@pytest.mark.parametrize("is_own", [True, False], ids=["as the runtime writes", "as any program"])
def test_an_event_with_an_endless_number_is_left_out_and_reported(
    tmp_path: Path,
    key: str,
    is_own: bool,  # noqa: FBT001  # a case
) -> None:
    lines = [kernel("a", 1, 2), inference(0, 9)]
    content = json.dumps([json.loads(line) for line in lines])
    write_profile(tmp_path / "p.json", lines)
    path = tmp_path / "p.json"
    text = path.read_text() if is_own else content
    endless = re.sub(rf'("{key}" ?: ?)\d+', rf"\g<1>1{'0' * 5000}", text, count=1)
    assert endless != text
    path.write_text(endless)
    done = run_command("trace", str(path))
    assert "Traceback" not in done.err
    note = "1 of its events cannot be read" if is_own else "the end of the file is missing"
    assert note in " ".join((done.out + done.err).split())


def test_an_event_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    endless = kernel("b" * (17 << 20), 3, 1)
    path = write_profile(tmp_path / "p.json", [kernel("a", 1, 2), endless, inference(0, 9)])
    done = run_command("trace", str(path), "--json", "-")
    (found,) = json.loads(done.out)["traces"]
    assert [operator["name"] for operator in found["operators"]] == ["a"]
    assert "line 3" in done.err
