"""Pushes the lines of a run to the branch of the history, with the token of the job."""

from __future__ import annotations

import base64
import os

from workflow import read_input, require, run_python, run_step


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


def push_history() -> int:
    branch, folder = read_input("history-branch"), require("INPUT_HISTORY")
    settings = git_settings(require("GITHUB_SERVER_URL"), require("INPUT_TOKEN"))
    command = ("-m", "pytest_modelperf", "history", "push", f"--branch={branch}", f"--dir={folder}")
    return run_python(*command, **settings)


if __name__ == "__main__":
    run_step(push_history)
