"""A result is written to anything in its place as that requires, or that is left alone."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import onnx
import pytest

from pytest_modelperf.errors import OutputError
from pytest_modelperf.files.output import check_output, written_bytes, written_text
from pytest_modelperf.files.store import remove_abandoned
from pytest_modelperf.systems.files import FILES
from tests.support.command import environment, refusal, run
from tests.support.project import write_dense
from tests.support.small_models import save_beside

pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a model."""
    monkeypatch.chdir(tmp_path)
    write_dense(tmp_path / "m.onnx")
    return tmp_path


@pytest.fixture
def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


@contextmanager
def read_from(pipe: Path) -> Iterator[list[bytes]]:
    """Return what another process reads of a named pipe from its opening to its end."""
    read: list[bytes] = []
    program = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    command = [sys.executable, "-c", program]
    with subprocess.Popen([*command, pipe], stdout=subprocess.PIPE) as reader:
        yield read
        read.append(reader.communicate()[0])


def spawn(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own, whose output are bytes."""
    command = [sys.executable, "-m", "pytest_modelperf", *arguments]
    return subprocess.run(command, capture_output=True, check=False, env=environment())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_named_pipe_is_not_opened_before_there_is_something_to_write(pipe: Path) -> None:
    # It has no reader: to open it would be to wait.
    check_output(pipe)


def test_the_reader_of_a_named_pipe_gets_the_whole_report(pipe: Path) -> None:
    with read_from(pipe) as read:
        done = run("profile", "--static", "m.onnx", "--json", "pipe")
    assert (done.exit_code, done.err) == (0, "")
    assert json.loads(read[0])["model"]["path"] == "m.onnx"
    assert pipe.is_fifo()


def test_the_reader_of_a_named_pipe_gets_the_whole_model(folder: Path, pipe: Path) -> None:
    with read_from(pipe) as read:
        done = run("shapes", "m.onnx", "-o", "pipe")
    assert (done.exit_code, done.err) == (0, "")
    run("shapes", "m.onnx", "-o", "file.onnx")
    assert read == [(folder / "file.onnx").read_bytes()]
    assert pipe.is_fifo()


def test_a_pipe_takes_one_document(pipe: Path) -> None:
    done = run("profile", "--static", "m.onnx", "--json", pipe.name, "--csv", pipe.name)
    assert done.exit_code == 2
    assert done.err.startswith("Error: --json and --csv would both write pipe: ")


@pytest.mark.parametrize("arguments", [("shapes", "-o"), ("profile", "--static", "--json")])
def test_a_device_stays_a_device(folder: Path, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    (folder / "null").symlink_to(os.devnull)
    done = run(command, "m.onnx", *options, "null")
    assert (done.exit_code, done.err) == (0, "")
    assert Path(os.devnull).is_char_device()
    assert names(folder) == ["m.onnx", "null"]


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1"])
def test_a_model_can_go_to_standard_output(folder: Path, target: str) -> None:
    done = spawn("shapes", "m.onnx", "-o", target)
    assert done.returncode == 0
    name = "the model on standard output" if target == "-" else target
    assert done.stderr.decode() == f"{name}: 3 of 3 tensors have a shape\n"
    onnx.checker.check_model(onnx.load_model_from_string(done.stdout), full_check=True)
    assert names(folder) == ["m.onnx"]
    assert Path("/dev/stdout").is_symlink() or not Path("/dev/stdout").exists()


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1"])
def test_a_report_on_standard_output_is_alone_there(folder: Path, target: str) -> None:
    with (folder / "out").open("wb") as out:
        command = [sys.executable, "-m", "pytest_modelperf", "profile", "--static", "m.onnx"]
        subprocess.run([*command, "--json", target], stdout=out, check=True, env=environment())
    assert json.loads((folder / "out").read_bytes())["model"]["path"] == "m.onnx"


def test_an_open_file_of_the_shell_goes_on_where_it_is(folder: Path) -> None:
    with (folder / "log").open("ab") as log:
        log.write(b"before\n")
        log.flush()
        with written_bytes(f"/dev/fd/{log.fileno()}") as file:
            file.write(b"result\n")
        log.write(b"after\n")
    assert (folder / "log").read_bytes() == b"before\nresult\nafter\n"


def test_the_weights_of_a_model_are_not_written_next_to_a_pipe(folder: Path, pipe: Path) -> None:
    (folder / "in").mkdir()
    save_beside(onnx.load(folder / "m.onnx"), folder / "in" / "outside.onnx", "w.bin")
    with read_from(pipe) as read:
        done = run("shapes", "in/outside.onnx", "-o", "pipe")
    assert (done.exit_code, done.err) == (0, "")
    assert "weights stay in w.bin: put that next to the model to run it\n" in done.out
    assert onnx.load_model_from_string(read[0]).graph.initializer
    assert names(folder) == ["in", "m.onnx", "pipe"]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("shapes", "m.onnx", "-o"), "-o"),
        (("profile", "--static", "m.onnx", "--json"), "--json"),
        (("compare", "--static", "other.onnx", "m.onnx", "--markdown"), "--markdown"),
        (("sweep", "other.onnx", "--against", "m.onnx", "--csv"), "--csv"),
        (("whatif", "m.onnx", "--html"), "--html"),
        (("doctor", "m.onnx", "--json"), "--json"),
        (("profiles", "m.onnx", "--json"), "--json"),
        (("trace", "m.onnx", "--chrome"), "--chrome"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("name", ["m.onnx", "link.onnx"])
def test_no_command_writes_over_what_it_reads(
    folder: Path, arguments: tuple[str, ...], option: str, name: str
) -> None:
    before = (folder / "m.onnx").read_bytes()
    (folder / "link.onnx").symlink_to("m.onnx")
    done = run(*arguments, name)
    error = f"Error: {option} would overwrite {name}, which is read: give another file.\n"
    assert done == (2, "", error)
    assert (folder / "m.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("share", ("model.onnx",)),
        ("reduce", ("before.onnx", "m.onnx")),
        ("reduce", ("m.onnx", "after.onnx")),
    ],
)
def test_no_folder_is_written_over_a_model_in_it(
    folder: Path, command: str, names: tuple[str, ...]
) -> None:
    (read,) = set(names) - {"m.onnx"}
    (folder / read).write_bytes((folder / "m.onnx").read_bytes())
    done = run(command, *names, "--output", ".", "--force")
    error = f"Error: --output would overwrite {read}, which is read: give another file.\n"
    assert done == (2, "", error)
    assert (folder / read).read_bytes() == (folder / "m.onnx").read_bytes()


def test_drawn_weights_take_no_place_of_external_data(folder: Path) -> None:
    weights = save_beside(onnx.load(folder / "m.onnx"), folder / "outside.onnx", "weights.bin")
    before = weights.read_bytes()
    assert "--output would overwrite weights.bin" in refusal(
        "share", "outside.onnx", "--output", ".", "--force"
    )
    assert weights.read_bytes() == before


@pytest.mark.parametrize("option", ["--json", "--csv", "--html", "--markdown"])
def test_no_report_is_written_over_the_external_data_of_a_model(folder: Path, option: str) -> None:
    weights = save_beside(onnx.load(folder / "m.onnx"), folder / "outside.onnx", "w.bin")
    before = weights.read_bytes()
    error = f"Error: {option} would overwrite w.bin, which is read: give another file.\n"
    for arguments in (
        ("profile", "--static", "outside.onnx"),
        ("compare", "--static", "m.onnx", "outside.onnx"),
    ):
        assert run(*arguments, option, "w.bin") == (2, "", error)
    assert weights.read_bytes() == before


def test_no_report_is_written_over_a_baseline(folder: Path) -> None:
    (folder / "base").mkdir()
    (folder / "base/model.json").write_text("{}")
    done = run("compare", "--static", "base", "m.onnx", "--json", "base/model.json")
    error = "--json would overwrite base/model.json, which is read: give another file.\n"
    assert done == (2, "", f"Error: {error}")
    assert (folder / "base/model.json").read_text() == "{}"


def test_a_model_that_cannot_be_read_is_reported_if_a_report_exists(folder: Path) -> None:
    (folder / "broken.onnx").write_bytes(b"no model")
    (folder / "old.json").write_text("{}")
    assert "broken.onnx" in refusal("profile", "--static", "broken.onnx", "--json", "old.json")


def test_a_file_is_the_old_one_until_the_new_one_is_whole(folder: Path) -> None:
    target = folder / "report"
    target.write_text("old")
    target.chmod(0o640)
    with written_text(target) as file:
        file.write("new")
        file.flush()
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert names(folder) == ["m.onnx", "report"]


def test_a_link_stays_and_what_it_leads_to_is_written(folder: Path) -> None:
    (folder / "link").symlink_to("file")
    for text in ("first", "second"):
        with written_text("link") as file:
            file.write(text)
        assert (folder / "file").read_text() == text
    assert (folder / "link").is_symlink()


def test_a_file_that_keeps_its_place_takes_other_content(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file behaves so if a container mounts it."""

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self), None, str(target))

    target = folder / "report"
    target.write_text("old and long")
    number = target.stat().st_ino
    monkeypatch.setattr(Path, "replace", refuse)
    with written_text(target) as file:
        file.write("new")
    assert (target.read_text(), target.stat().st_ino) == ("new", number)
    assert names(folder) == ["m.onnx", "report"]


def test_anything_in_the_place_of_a_report_is_reported(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "lost").symlink_to("gone/report")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    for target, reason in {
        ".": "Is a directory",
        "loop": "Too many levels of symbolic links",
        "socket": "Is a socket",
        "m.onnx/report": "Not a directory",
        "x" * 300: "File name too long",
        "no/such/report": r"there is no folder no/such\. Make it with mkdir -p no/such",
        "/dev/fd/987": "Bad file descriptor",
        "lost": rf"there is no folder {folder}/gone\. Make it with mkdir -p {folder}/gone,",
    }.items():
        with pytest.raises(OutputError, match=rf"cannot write {target}: {reason}"):
            check_output(target)
    assert names(folder) == ["loop", "lost", "m.onnx", "socket"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "the name of the file is empty: give one, or - for standard output."),
        ("new/", "cannot write new/: it names a folder. Give the name of a file in it."),
    ],
)
def test_the_name_of_a_report_is_that_of_a_file(folder: Path, target: str, message: str) -> None:
    done = run("profile", "--static", "m.onnx", "--json", target)
    assert done == (2, "", f"Error: --json: {message}\n")
    assert names(folder) == ["m.onnx"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "--static", "m.onnx", "--json"),
        ("init",),
        ("baselines", "--dir"),
        ("profiles", "m.onnx", "--dir"),
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_is_too_long_is_reported(folder: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "x" * 300)
    assert done.exit_code == 2, done.out
    assert re.fullmatch(r"Error: [^\n]*x{300}[^\n]*\.\n", done.err)
    assert names(folder) == ["m.onnx"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_report_is_shown_if_not_every_character_can_be(folder: Path, encoding: str) -> None:
    write_dense(folder / "größe 模型.onnx")
    command = [sys.executable, "-m", "pytest_modelperf", "profile", "größe 模型.onnx", "--static"]
    env = environment({"PYTHONIOENCODING": encoding})
    done = subprocess.run(command, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode(encoding).splitlines()
    assert any(line and set(line) == {"-"} for line in lines)
    name = "gr\\xf6\\xdfe" if encoding == "ascii" else "größe"
    assert lines[0].startswith(f"{name} \\u6a21\\u578b.onnx: ")
    table = subprocess.run([*command, "--markdown", "-"], capture_output=True, check=False, env=env)
    assert table.returncode == 0, table.stderr
    assert f"{name} \\u6a21\\u578b.onnx" in table.stdout.decode(encoding)


_CLOSED = """\
import os, sys
for number in map(int, sys.argv[1]):
    os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "pytest_modelperf", *sys.argv[2:]])
"""


def spawn_closed(numbers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process that is started without some of its standard streams."""
    command = [sys.executable, "-c", _CLOSED, numbers, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


@pytest.mark.parametrize("numbers", ["1", "01"])
def test_a_standard_output_that_is_closed_is_reported(folder: Path, numbers: str) -> None:
    done = spawn_closed(numbers, "profile", "--static", "m.onnx", "--json", "report")
    assert done.returncode == 2
    assert done.stderr == (
        "Error: standard output is closed, but results go there: redirect it, as in > report.txt, "
        "or to /dev/null if you only want files.\n"
    )
    assert names(folder) == ["m.onnx"]


def test_the_exit_code_shows_an_error_that_cannot_be_printed(folder: Path) -> None:
    done = spawn_closed("012", "profile", "--static", "m.onnx", "--json", "report")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    assert names(folder) == ["m.onnx"]


@pytest.mark.usefixtures("folder")
def test_a_model_is_measured_if_standard_error_is_closed() -> None:
    done = spawn_closed("02", "profile", "m.onnx", "--max-seconds", "0.2", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["cases"][0]["outcome"] == "measured"


@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "--static", "{model}", "--json", "report"),
        ("shapes", "{model}", "-o", "out.onnx"),
        ("profiles", "{model}"),
    ],
    ids=lambda words: words[0],
)
def test_a_working_folder_that_was_removed_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = run(*(word.format(model=folder / "m.onnx") for word in arguments))
    message = "the working folder was removed: change to one that exists, as in cd .., "
    assert done == (2, "", f"Error: {message}and try again.\n")


def test_a_path_that_is_not_utf8_is_written_counted_and_shown(folder: Path) -> None:
    name = os.fsdecode(b"m\xff.onnx")
    (folder / "m.onnx").rename(name)
    done = run("profile", "--static", name, "--json", os.fsdecode(b"report\xff"))
    assert (done.exit_code, done.err) == (0, "")
    report = json.loads((folder / os.fsdecode(b"report\xff")).read_bytes())
    assert report["model"]["path"] == name
    done = run("profile", name)
    assert (done.exit_code, done.err) == (3, "")
    assert (
        f"b1-c1: failed: a worker only takes text that is valid UTF-8, not {folder}"
        r"/m\udcff.onnx: give the file or the folder another name."
    ) in done.out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("libblas.so: failed to map segment from shared object")],
    ids=["of Python", "of the loader"],
)
def test_memory_that_runs_out_is_one_error(error: Exception) -> None:
    def sweep(*_: object) -> NoReturn:
        raise error

    done = run("sweep", "m.onnx", core=sweep)
    advice = "End other programs, or allow more: ulimit -v shows what this process may have."
    assert done == (3, "", f"Error: there is not enough memory. {advice}\n")


# Half of a result is in the file next to it when its process is killed.
KILLED = """\
import os, signal, sys
from pytest_modelperf.files.output import written_text
with written_text(sys.argv[1]) as file:
    file.write("half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before", [None, "the old one"], ids=["new", "replaced"])
def test_files_of_a_killed_writer_go_with_the_next_result(
    tmp_path: Path, before: str | None
) -> None:
    target = tmp_path / "report.json"
    if before is not None:
        target.write_text(before)
    done = subprocess.run([sys.executable, "-c", KILLED, target], check=False, env=environment())
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 1 + (before is not None)
    with written_text(tmp_path / "other.json") as file:
        file.write("whole")
    assert names(tmp_path) == ["other.json"] + ["report.json"] * (before is not None)
    assert before is None or target.read_text() == before


def test_a_result_that_is_being_written_stays_during_the_next_one(tmp_path: Path) -> None:
    with written_text(tmp_path / "slow.json") as slow:
        slow.write("one")
        with written_text(tmp_path / "quick.json") as quick:
            quick.write("other")
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == ["quick.json", "slow.json"]
    assert (tmp_path / "slow.json").read_text() == "one"


def test_a_system_that_removes_no_open_file_removes_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows behaves so."""
    unlink = Path.unlink

    def unlink_unless_open(path: Path, *, missing_ok: bool = False) -> None:
        if str(path) in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_unless_open)
    monkeypatch.setattr(FILES, "moves_open_files", False)
    (tmp_path / ".modelperf-0123abcd.tmp").write_text("half")
    remove_abandoned(tmp_path)
    assert names(tmp_path) == []


def test_a_file_of_another_name_and_a_link_do_not_count_as_leftovers(tmp_path: Path) -> None:
    kept = tmp_path / ".modelperf-notes.tmp"
    kept.write_text("mine")
    link = tmp_path / ".modelperf-0123abcd.tmp"
    link.symlink_to(kept)
    with written_text(tmp_path / "report.json") as file:
        file.write("whole")
    assert names(tmp_path) == [link.name, kept.name, "report.json"]
