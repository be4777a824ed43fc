"""Claims of files take no memory: each is read, or refused in a line, with little of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.hostile import bounded
from tests.support.checkout import ROOT
from tests.support.command import environment

pytestmark = pytest.mark.slow

# One child reads all in some seconds. One that takes so long hangs.
_SECONDS = 240
_LINE = 1000
# Odd models that an engine may run, or find odd itself.
ACCEPTED = frozenset({
    "types 20 deep", "a fill of a terabyte", "a tile of a terabyte", "a pad of a terabyte",
    "one hot in 2**50", "loops of 2**1860 trips",
})  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str | None]]:
    """Return the result of each file."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux knows, and limits, the memory of a process")
    folder = tmp_path_factory.mktemp("bounded")
    bounded.write_models(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.bounded", str(folder)],
        # A pool of threads takes memory for each.
        env=environment({"OPENBLAS_NUM_THREADS": "1"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["name"]: answer for answer in answers}


@pytest.mark.parametrize("name", [*bounded.FILES, *bounded.MODELS])
def test_the_claims_of_a_file_take_no_memory(
    name: str, outcomes: Mapping[str, Mapping[str, str | None]]
) -> None:
    assert name in outcomes, "the process that read it ended"
    assert outcomes[name]["fault"] is None
    refused = outcomes[name]["refused"]
    if name in ACCEPTED:
        assert refused is None
    else:
        assert refused is not None
        assert refused.isprintable()
        assert len(refused) < _LINE
