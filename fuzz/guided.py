"""One target under atheris, with options and folders as libFuzzer has them.

    python -m fuzz.guided --target=NAME [OPTION...] [FOLDER...]

It watches which lines and branches of this package, and of the scripts of its actions, each input
reaches, and keeps those that reach new ones to change them further: https://llvm.org/docs/LibFuzzer.html.
"""

from __future__ import annotations

import shlex
import sys
from random import Random

import atheris

# What `fuzz.reports` imports from `actions`.
_SCRIPTS = ("comment_body", "run_reader", "workflow")

with atheris.instrument_imports(include=["pytest_modelperf", *_SCRIPTS]):
    from fuzz.replay import limit_memory
    from fuzz.targets import TARGETS

# The other inputs are changed byte by byte, as what a program wrote wrong may be.
_MUTATED_SHARE = 0.8


def main() -> None:
    target = TARGETS[sys.argv[1].removeprefix("--target=")]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < _MUTATED_SHARE:
            changed = target.mutate(data, random)
            if changed is not None and len(changed) <= max_size:
                return changed
        return bytes(atheris.Mutate(data, max_size))

    # What merges corpora has a shell start this again, by its first argument.
    itself = f"{shlex.quote(sys.executable)} -m fuzz.guided"
    options = [*sys.argv[1:], f"-max_len={target.max_bytes}"]
    atheris.Setup([itself, *options], target.check, custom_mutator=mutate)
    limit_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
