"""What the tests of several modules of the worker need."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def socket_server() -> Iterator[str]:
    """An execnet server on this machine, as one would run on another."""
    command = [sys.executable, "-u", "-m", "execnet.script.socketserver", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        place = re.search(r"\('127.0.0.1', (\d+)\)", server.stdout.readline())
        assert place is not None
        yield f"127.0.0.1:{place[1]}"
        server.kill()
