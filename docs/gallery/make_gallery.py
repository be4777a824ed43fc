"""Makes the gallery: every kind of page, and a comment, of real runs on this machine.

The model is SqueezeNet, as in the README. From version to version other activations of it become
Elu, which is slower; the last version fails its test. A quiet machine takes some five minutes.

    make gallery
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from comment_body import EndedRun, Job, render_comment
from post_comment import curves_of
from run_reader import Artifact
from stored_pages import SUFFIX, without_shared

from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.text.version import SITE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Where the page of the run lies.
RUN = f"{SITE}gallery/run.html"
LIGHT = Path(onnx.__path__[0]) / "backend/test/data/light/light_squeezenet.onnx"
REPORT = "modelperf.json"
MODEL, OLD = "models/squeezenet.onnx", "models/before.onnx"
# Found worse is what a page may show, and no reason to stop.
SHOWN = (0, 1)
# How many of the last Relus are Elus in each version. A version that is accepted is the baseline of
# those after it.
VERSIONS = (0, 1, 1, 2, 2, 8, 8, 7)
ACCEPTED = (0, 8)
FAILING = 20
FIRST = "v1.0"
HISTORY = "--modelperf-history=history"
RECORD = "--modelperf-update-baseline"


def main() -> None:
    with TemporaryDirectory(prefix="modelperf-") as made:
        project = Path(made)
        (project / "models").mkdir()
        # It is the root, whatever lies above.
        (project / "pytest.ini").write_text("[pytest]\n")
        make_pages(project)
        for page in project.glob("*.html"):
            stored = HERE / f"{page.name}{SUFFIX}"
            stored.write_text(without_shared(page.read_text("utf-8")), "utf-8")
        (HERE / "comment.md").write_text(comment(project), "utf-8")


def make_pages(project: Path) -> None:
    run_versions(project)
    modelperf(project, "bisect", MODEL, "--commits", f"{FIRST}..HEAD", "--html", "bisect.html")
    write_version(project / OLD, 0)
    modelperf(project, "profile", MODEL, "--batch", "1,4", "--html", "profile.html")
    modelperf(project, "compare", OLD, MODEL, "--html", "compare.html")
    ranges = ("--batch", "1,2,4", "--cores", "1,2", "--max-seconds", "15", "--all-layers")
    modelperf(project, "sweep", MODEL, *ranges, "--html", "sweep.html")
    variants = ("--prune-channels", "0.25,0.5", "--quantize", "int8")
    modelperf(project, "whatif", MODEL, *variants, "--html", "whatif.html")
    modelperf(project, "history", "--html", "history.html")
    tuned = ("--cores", "2", "--engine-option", "graph_optimization_level=basic")
    modelperf(project, "tune", MODEL, *tuned, "--max-seconds", "60", "--html", "tune.html")
    modelperf(project, "doctor", MODEL, "--cores", "1,2", "--html", "doctor.html")


def run_versions(project: Path) -> None:
    """Commits and tests each version as a project does."""
    git(project, "init", "--quiet")
    accepted: set[int] = set()
    for number, elus in enumerate(VERSIONS):
        commit_version(project, number, elus)
        is_accepted = elus in ACCEPTED and elus not in accepted
        run_test(project, HISTORY, *([RECORD] if is_accepted else []))
        accepted.add(elus)
    commit_version(project, len(VERSIONS), FAILING)
    run_test(project, "--modelperf-html=run.html", f"--modelperf-json={REPORT}")


def commit_version(project: Path, number: int, elus: int) -> None:
    """Writes and commits a version; the tag of the first one is FIRST."""
    write_version(project / MODEL, elus)
    git(project, "add", MODEL)
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    message = f"Make {elus} activations smoother"
    git(project, *author, "commit", "--quiet", "--allow-empty", "--message", message)
    if number == 0:
        git(project, "tag", FIRST)


def git(project: Path, *arguments: str) -> None:
    command = ("git", "-C", str(project), *arguments)
    subprocess.run(command, check=True)


def write_version(path: Path, elus: int) -> None:
    model = onnx.load(LIGHT)
    relus = [node for node in model.graph.node if node.op_type == "Relu"]
    for node in relus[len(relus) - elus :]:
        node.op_type = "Elu"
    onnx.save(model, path)


def comment(project: Path) -> str:
    """The comment that the action writes of the failing run."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.write(project / REPORT, REPORT)
    return render_comment(
        "Model performance",
        Artifact(archive.getvalue()).read_cases(),
        curves_of(HistoryStore(project / "history").files()),
        EndedRun(RUN, tested_commit(), "failure", (Job("modelperf", "failure"),)),
    )


def tested_commit() -> str:
    """The commit of this checkout; a source archive has none."""
    command = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    found = subprocess.run(command, capture_output=True, check=False, text=True)
    return found.stdout.strip() or "0" * 40


def modelperf(project: Path, *arguments: str) -> None:
    run_module(project, "pytest_modelperf", *arguments)


def run_test(project: Path, *arguments: str) -> None:
    # Without the plugins that the tests of this repository need.
    alone = ("-p", "pytest_modelperf.plugin", "-p", "no:cacheprovider")
    run_module(project, "pytest", *alone, "--modelperf", MODEL, *arguments)


def run_module(project: Path, *command: str) -> None:
    """Runs a module of Python in the project; SystemExit, with its output, if it failed."""
    print("$", *command, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if done.returncode not in SHOWN:
        sys.exit(f"{done.stdout}\nerror: {' '.join(command)} ended with {done.returncode}")


if __name__ == "__main__":
    main()
