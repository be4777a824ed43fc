"""Pulls the history from its branch before a run, and pushes the lines of the run to it after.

Its argument is `pull` or `push`. Git signs in with the token of the job.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from tempfile import mkdtemp

from workflow import read_input, require, run_python, run_step, write_outputs


def git_settings(server: str, token: str) -> dict[str, str]:
    """Variables that let git sign in to the server.

    A process shows its arguments to others, so the token is not among them. The empty value drops
    the header of a checkout that left its own token: a server refuses two.
    """
    key = f"http.{server}/.extraheader"
    signed = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    count = int(os.environ.get("GIT_CONFIG_COUNT", "0"))
    return {
        "GIT_CONFIG_COUNT": str(count + 2),
        f"GIT_CONFIG_KEY_{count}": key,
        f"GIT_CONFIG_VALUE_{count}": "",
        f"GIT_CONFIG_KEY_{count + 1}": key,
        f"GIT_CONFIG_VALUE_{count + 1}": f"AUTHORIZATION: basic {signed}",
    }


def pull_history() -> int:
    """The folder is an output; it is not there if the branch is not."""
    folder = Path(mkdtemp(prefix="modelperf-", dir=require("RUNNER_TEMP"))) / "history"
    write_outputs({"folder": str(folder)})
    return _run_history("pull", str(folder))


def push_history() -> int:
    return _run_history("push", require("INPUT_HISTORY"))


def _run_history(word: str, folder: str) -> int:
    settings = git_settings(require("GITHUB_SERVER_URL"), require("INPUT_TOKEN"))
    branch = f"--branch={read_input('history-branch')}"
    command = ("-m", "pytest_modelperf", "history", word, branch, f"--dir={folder}")
    return run_python(*command, **settings)


if __name__ == "__main__":
    run_step({"pull": pull_history, "push": push_history}[sys.argv[1]])
