"""The folder of a shared model: its files, written at once."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.files.folders import write_folder
from pytest_modelperf.graph.run_plan import WEIGHTS_FILE
from pytest_modelperf.sharing.document import DOCUMENT_FILE, dump_share
from pytest_modelperf.sharing.readme import render_readme
from pytest_modelperf.sharing.records import Share

README_FILE = "README.md"


def files_of(share: Share) -> Mapping[str, bytes]:
    """Every file of the folder, by its name."""
    return {
        README_FILE: render_readme(share).encode(),
        **share.files,
        DOCUMENT_FILE: dump_share(share).encode(),
    }


def write_share(share: Share, target: str) -> None:
    """Write the folder or the archive; weights that were drawn for an earlier model go."""
    write_folder(files_of(share), target, stale=(WEIGHTS_FILE,))
