"""The output of a worker, which goes to a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PRINTING = """
import sys
from pytest_modelperf.profiler.worker.process import redirect_output

redirect_output(sys.argv[1])
print("\\u2713 \\udc80")
"""


def test_a_model_prints_what_the_locale_has_no_characters_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", PRINTING, str(log)]
    subprocess.run(command, env={**os.environ, **ascii_only}, check=True)
    assert log.read_text("utf-8") == "\u2713 \\udc80\n"
