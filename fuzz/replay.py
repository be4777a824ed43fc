"""Give inputs to a target one after the other, without looking for others: any Python can.

    python -m fuzz.replay [TARGET [FILE...]]

A file may also be given as the text that `fuzz/run.py` shows of it, which starts with `zlib:`.
Without a file these are the inputs in `corpus` and `found`. The name of each is printed before it
is read, so that where a reader takes the process down the last one is what did it. Exit code 1
where one breaks a law; so it is where one takes longer than a reader may, or needs more memory.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzz.run import from_text
from fuzz.scratch import scratch_file
from fuzz.targets import TARGETS

FOLDER = Path(__file__).parent
# A hundred times what the slowest takes: the machine may be busy.
MAX_SECONDS = 60
# What a process may have beyond what it has with all modules imported.
MAX_ADDED_BYTES = 1 << 30


def committed_inputs(target: str) -> list[Path]:
    """What is kept of a target: inputs that reach all that is reached, and those that broke it."""
    folders = (FOLDER / kind / target for kind in ("corpus", "found"))
    return sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir())


def given_input(given: str) -> Path:
    """The file that a path or a text stands for."""
    data = from_text(given)
    return Path(given) if data is None else scratch_file("given", data)


def limit_memory() -> None:
    """Have an allocation fail that goes beyond what a reader may need."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        sys.stdout.write("the system does not tell how large a process is: memory has no limit\n")
        return
    used = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_ADDED_BYTES, most))


def replay(target: str, check: Callable[[bytes], bool], paths: Sequence[Path]) -> int:
    """How many inputs broke a law of a target; each is told with its traceback."""
    taken = broken = 0
    for path in paths:
        sys.stdout.write(f"{target}: {path}\n")
        sys.stdout.flush()
        data = path.read_bytes()
        # Ends the process, whatever it is in: no signal reaches Python from within a library.
        faulthandler.dump_traceback_later(MAX_SECONDS, exit=True)
        try:
            taken += check(data)
        except Exception:  # noqa: BLE001  # whatever comes out is a finding
            broken += 1
            sys.stdout.write(traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"{target}: {len(paths)} inputs read, {taken} taken, {broken} broke a law\n")
    return broken


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names[:1] if name not in TARGETS]
    if unknown:
        sys.stderr.write(f"there is no target {unknown[0]!r}: {', '.join(TARGETS)}\n")
        return 2
    inputs = list(map(given_input, names[1:]))
    missing = [path for path in inputs if not path.is_file()]
    if missing:
        sys.stderr.write(f"{str(missing[0])!r} is neither a file nor the whole text of an input\n")
        return 2
    faulthandler.enable()
    limit_memory()
    broken = 0
    for target in names[:1] or TARGETS:
        broken += replay(target, TARGETS[target].check, inputs or committed_inputs(target))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
