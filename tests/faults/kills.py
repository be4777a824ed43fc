"""Test runs that are killed at random moments, and what each left of the baselines.

    python -m tests.faults.kills FOLDER [KILLS [SEED]]

A project of one model that has one of two versions is recorded again and again by real runs of
pytest. Each is killed, with all that it started, at a moment drawn from the time that a whole run
takes. Whatever the moment, the baseline has to be that of one of the versions, whole; at the end a
run that is not killed leaves nothing but its files. It prints a line of JSON, and ends with 1 if
anything was wrong. 160 kills take some ten minutes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import BaselineError
from tests.support.command import environment
from tests.support.project import write_dense

_KILLS, _SEED = 160, 1
_NAME = "m"
_VERSIONS = (3, 5)
_COMMAND = (sys.executable, "-m", "pytest", "-q", "-p", "pytest_modelperf.plugin",
            "-p", "no:cacheprovider", "--modelperf", "--modelperf-update-baseline",
            "--modelperf-max-seconds=0.2")  # fmt: skip


class Campaign:
    """The project whose runs are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = BaselineStore(folder / "baselines")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(f'[tool.modelperf.models."{_NAME}.onnx"]\n')

    def start(self, version: int) -> subprocess.Popen[bytes]:
        write_dense(self.folder / f"{_NAME}.onnx", version)
        return subprocess.Popen(
            _COMMAND,
            cwd=self.folder,
            env=environment({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Its workers are in its group, and are killed with it.
            start_new_session=True,
        )

    def run(self, version: int) -> float:
        """Run to the end, and return the seconds that it took."""
        begun = time.monotonic()
        code = self.start(version).wait()
        if code:
            raise SystemExit(f"a run that was not killed ended with {code}: see {self.folder}")
        return time.monotonic() - begun

    def kill(self, version: int, seconds: float) -> None:
        """Kill a run after `seconds`, unless it has ended by then."""
        process = self.start(version)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def digest(self) -> str | None:
        """The digest of the recorded model; None without a baseline, BaselineError if not whole."""
        stored = self.store.read(_NAME)
        return None if stored is None else stored.model.model.sha256

    def files(self) -> list[str]:
        root = self.store.root
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def main(folder: str, kills: int = _KILLS, seed: int = _SEED) -> int:
    campaign = Campaign(Path(folder))
    chance = random.Random(seed)
    whole, known = [], []
    for version in _VERSIONS:
        whole.append(campaign.run(version))
        known.append(campaign.digest())
    files = campaign.files()
    problems = []
    changes = 0
    before = known[-1]
    for number in range(kills):
        seconds = chance.uniform(0.0, max(whole))
        campaign.kill(chance.choice(_VERSIONS), seconds)
        try:
            after = campaign.digest()
        except BaselineError as error:
            problems.append(f"kill {number} after {seconds:.3f} s: {error}")
            continue
        if after not in known:
            problems.append(f"kill {number} after {seconds:.3f} s: it is neither version")
        changes += after != before
        before = after
    if not problems:
        for version in _VERSIONS:
            campaign.run(version)
        left = sorted({*campaign.files()} - {*files})
        if left:
            problems.append(f"files are left: {', '.join(left)}")
    counts = {"kills": kills, "seed": seed, "changes": changes, "problems": problems}
    sys.stdout.write(json.dumps(counts) + "\n")
    return 1 if problems else 0


def _parse(arguments: Sequence[str]) -> tuple[str, int, int]:
    folder, *numbers = arguments
    kills, seed = [*map(int, numbers), *(_KILLS, _SEED)[len(numbers) :]]
    return folder, kills, seed


if __name__ == "__main__":
    sys.exit(main(*_parse(sys.argv[1:])))
