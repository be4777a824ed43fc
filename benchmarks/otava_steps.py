"""The change points that Apache Otava finds, for `history.py`.

It runs in the Python of an environment that has apache-otava, and knows nothing of this project:
standard input has a JSON list of series, standard output gets the indexes of the change points of
each, by the options of `otava analyze`: without any, and with a smallest change of 1 %.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys

# The defaults of `otava analyze`.
WINDOW, MAX_P_VALUE = 50, 0.001
LEAST_CHANGES = {"default": 0.0, "-M 0.01": 0.01}


def main() -> None:
    from otava.analysis import merge, split

    found: dict[str, list[list[int]]] = {name: [] for name in LEAST_CHANGES}
    for series in json.load(sys.stdin):
        # As `compute_change_points` does, which would split again for each smallest change.
        weak = split(series, WINDOW, 10 * MAX_P_VALUE)
        for name, least in LEAST_CHANGES.items():
            kept = merge([*weak], series, MAX_P_VALUE, least)
            found[name].append([int(change.index) for change in kept])
    json.dump({"version": importlib.metadata.version("apache-otava"), "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
