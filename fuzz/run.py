"""Look for inputs that break a reader, guided by what each reaches.

    python fuzz/run.py [--seconds 20 | --executions N] [--seed N] [--keep] [--seeds FOLDER]
                       [TARGET...]

Each target has a process of its own for so many seconds, which begins with the inputs in `corpus`
and `found`. With `--executions` and `--seed` the same tree is given the same inputs each time. A
target ends at the first input that breaks it: that input is kept in `crashes`, and the exit code is
1. With `--keep` what reached something new joins the corpus, which is made as small as it can be.
Without atheris, which is there for Python 3.11 to 3.13 on Linux, the inputs are only replayed, and
a line says so.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
CORPUS, FOUND, CRASHES = (FOLDER / name for name in ("corpus", "found", "crashes"))

SECONDS = 20
# An input that takes longer hangs; the machine may be busy.
MAX_SECONDS = 60
_LINES_SHOWN = 25
# An input in more characters is not shown.
_MAX_TEXT = 10_000
# How an input begins that is given as text.
_AS_TEXT = "zlib:"

_REACHED = re.compile(r" cov: (\d+) ft: \d+ corp: (\d+)/")
_CRASH = re.compile(r"Test unit written to (.+)")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units: (\d+)")
# What libFuzzer decides by the clock or otherwise in every process: whether it reads its own corpus
# again, and which input it changes next.
_REPEATABLE = ("-reload=0", "-entropic=0")
# Only which edges are reached counts, not how often: so some dozens of inputs reach them all.
_MERGE = ("-merge=1", "-set_cover_merge=1", "-use_counters=0")


class _CannotRunError(Exception):
    """A target ended otherwise than by an input that broke it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a target did in its time: `edges` are what of the package its inputs reached."""

    target: str
    executions: int
    edges: int
    inputs: int
    crash: Path | None
    output: str

    def line(self) -> str:
        found = "no crash" if self.crash is None else "a crash"
        return (
            f"{self.target:<15} {self.executions:>11,} executions, {self.edges:>6,} edges, "
            f"corpus of {self.inputs:>4,} inputs, {found}"
        )


@dataclass(frozen=True, slots=True)
class Search:
    """How long a target is looked at, and where the search begins."""

    seconds: int
    executions: int | None
    seed: int
    seeds: Path | None

    def arguments(self) -> list[str]:
        length = (
            [f"-max_total_time={self.seconds}"]
            if self.executions is None
            else [f"-runs={self.executions}", *_REPEATABLE]
        )
        return [*length, f"-seed={self.seed}"]


def fuzz(target: str, search: Search, grown: Path) -> Result:
    """Look for inputs; those that reached something new are written to `grown`."""
    crashes = CRASHES / target
    crashes.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as listed:
        listed.write(",".join(_inputs(target, search.seeds)))
        listed.flush()
        done = _run_guided(
            target,
            *search.arguments(),
            f"-timeout={MAX_SECONDS}",
            f"-report_slow_units={MAX_SECONDS}",
            f"-artifact_prefix={crashes}{os.sep}",
            "-print_final_stats=1",
            f"-seed_inputs=@{listed.name}",
            str(grown),
        )
    reached = _REACHED.findall(done.stdout)
    executions = _EXECUTIONS.search(done.stdout)
    written = _CRASH.search(done.stdout)
    if executions is None or (done.returncode and written is None):
        raise _CannotRunError(_ending(done))
    # Where an input that was there already breaks it, nothing is told of what is reached.
    edges, inputs = map(int, reached[-1]) if reached else (0, 0)
    crash = None if written is None else Path(written[1])
    return Result(target, int(executions[1]), edges, inputs, crash, done.stdout)


def keep(target: str, grown: Path, seeds: Path | None) -> int:
    """Make the corpus of as few inputs as reach all that is reached; how many these are."""
    with tempfile.TemporaryDirectory() as made:
        done = _run_guided(target, *_MERGE, made, str(grown), *_folders(target, seeds))
        if done.returncode:
            raise _CannotRunError(_ending(done))
        merged = sorted(Path(made).iterdir())
        shutil.rmtree(CORPUS / target, ignore_errors=True)
        (CORPUS / target).mkdir(parents=True)
        for path in merged:
            shutil.copyfile(path, CORPUS / target / path.name)
    return len(merged)


def replay(targets: Sequence[str]) -> int:
    """Give the kept inputs to each target, in a process of its own; how many targets broke."""
    broken = 0
    for target in targets:
        done = _run("fuzz.replay", target)
        last = done.stdout.splitlines()[-1:] if not done.returncode else [_tail(done.stdout)]
        _say("\n".join(last))
        broken += done.returncode != 0
    return broken


def _folders(target: str, seeds: Path | None) -> list[str]:
    folders = [CORPUS / target, FOUND / target]
    if seeds is not None:
        folders.append(seeds / target)
    return [str(folder) for folder in folders if folder.is_dir()]


def _inputs(target: str, seeds: Path | None) -> list[str]:
    """Every input to begin with, in an order that is the same in every file system."""
    folders = map(Path, _folders(target, seeds))
    paths = [path for folder in folders for path in sorted(folder.iterdir())]
    # From the root: libFuzzer divides the list at commas, which the path of a checkout may have.
    return [os.path.relpath(path, ROOT) for path in paths]


def _run_guided(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # What merges corpora starts itself again with these arguments, and passes over `--`.
    return _run("fuzz.guided", f"--target={target}", *arguments)


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as scratch:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            # A process that breaks leaves its temporary files. The order of a set is no chance.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "TMPDIR": scratch,
                "PYTHONHASHSEED": "0",
            },
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


def _ending(done: subprocess.CompletedProcess[str]) -> str:
    return f"{_tail(done.stdout)}\nit ended with {done.returncode}"


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-_LINES_SHOWN:])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def as_text(data: bytes) -> str:
    """An input for the command line: the folder that it was found in may soon be gone."""
    return _AS_TEXT + base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def from_text(given: str) -> bytes | None:
    """The input that `as_text` made this of; None where it made nothing of the kind."""
    if not given.startswith(_AS_TEXT):
        return None
    try:
        return zlib.decompress(base64.b64decode(given.removeprefix(_AS_TEXT), validate=True))
    except (ValueError, zlib.error):
        return None


def show_crash(result: Result, crash: Path, root: Path = ROOT) -> None:
    _, _, told = result.output.partition(" === Uncaught Python exception: ===\n")
    _say((told or _tail(result.output)).partition("\n==")[0])
    command = f"python -m fuzz.replay {result.target}"
    _say(f"run it alone: {command} {crash.relative_to(root)}")
    text = as_text(crash.read_bytes())
    if len(text) <= _MAX_TEXT:
        _say(f"in another folder: {command} {text}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    targets = sorted(path.name for path in CORPUS.iterdir())
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(targets)}")
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, help="for each target (%(default)s)"
    )
    parser.add_argument(
        "--executions", type=int, metavar="N", help="so many inputs each, however long they take"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="where chance begins (0: anywhere)"
    )
    parser.add_argument("--keep", action="store_true", help="let new inputs join the corpus")
    parser.add_argument(
        "--seeds", type=Path, metavar="FOLDER", help="inputs to begin with, by target"
    )
    options = parser.parse_args(arguments)
    unknown = sorted({*options.targets} - {*targets})
    if unknown:
        parser.error(f"there is no target {unknown[0]}: {', '.join(targets)}")
    options.targets = options.targets or targets
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if importlib.util.find_spec("atheris") is None:
        _say(
            f"atheris is not installed for {sys.executable} (it is there for Python 3.11 to 3.13 "
            "on Linux): inputs are replayed, none is looked for. Install it: `make fuzz`"
        )
        return 1 if replay(options.targets) else 0
    crashes = 0
    search = Search(options.seconds, options.executions, options.seed, options.seeds)
    for target in options.targets:
        with tempfile.TemporaryDirectory() as grown:
            try:
                result = fuzz(target, search, Path(grown))
                _say(result.line())
                if result.crash is not None:
                    crashes += 1
                    show_crash(result, result.crash)
                elif options.keep:
                    _say(f"kept {keep(target, Path(grown), options.seeds):,} inputs")
            except _CannotRunError as error:
                _say(f"{target} could not be run:\n{error}")
                return 2
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
