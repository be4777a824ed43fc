"""The folder of a shared model: its files, written at once."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.files.folders import write_folder
from pytest_modelperf.graph.run_plan import MODEL_FILE, PLAN_FILE, PROGRAM_FILE, WEIGHTS_FILE
from pytest_modelperf.sharing.readme import render_readme
from pytest_modelperf.sharing.records import DOCUMENT_FILE, SHARE, Share

README_FILE = "README.md"
# The files that are written into a folder, or removed from it.
REPLACED_FILES = (
    README_FILE, MODEL_FILE, PROGRAM_FILE, PLAN_FILE, DOCUMENT_FILE, WEIGHTS_FILE,
)  # fmt: skip


def files_of(share: Share) -> Mapping[str, bytes]:
    """Every file of the folder, by its name."""
    return {
        README_FILE: render_readme(share).encode(),
        **share.files,
        DOCUMENT_FILE: SHARE.dump(share).encode(),
    }


def write_share(share: Share, target: str) -> None:
    """Write the folder or the archive; weights that were drawn for an earlier model go."""
    write_folder(files_of(share), target, stale=(WEIGHTS_FILE,))
