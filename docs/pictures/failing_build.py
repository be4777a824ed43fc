"""Draws the report of a failing build as a picture, from what a terminal showed.

    python docs/pictures/failing_build.py            draw failing-build.svg again
    python docs/pictures/failing_build.py --measure  first run the build that fails, for ten seconds

SqueezeNet is recorded as a baseline, then its last Relu becomes Elu, which is slower. What pytest
then shows in a terminal is stored with its colours in failing-build.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

import onnx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPORT, PICTURE = HERE / "failing-build.txt", HERE / "failing-build.svg"
LIGHT = Path(onnx.__path__[0]) / "backend/test/data/light/light_squeezenet.onnx"
MODEL = "models/squeezenet.onnx"
COLUMNS = 80

TITLE = (
    "A failing build: pytest says by how much SqueezeNet is slower, and which change explains it."
)
# Lines that a reader of the picture can do without; docs/reading-a-failure.md explains them.
LEFT_OUT = re.compile(
    r"=+ test session|platform |modelperf: |rootdir: |configfile: |plugins: "
    r"|collected |models/\S+ F"
    r"|=+ model performance|linux-|case {2}|squeezenet\.onnx::\S+ {2}"
    r"|1 regressed|regressed: each|=+ short test summary|=+ FAILURES|_+ squeezenet|-v also shows"
    r"|=+ 1 failed|FAILED models"
)
RULE = re.compile("─+$")
CUT = "⋮"

# The size of text on a page of GitHub, whose column is as wide as the picture.
FONT_SIZE, ADVANCE, LINE_HEIGHT, MARGIN = 14, 8.43, 19, 20
STYLE = """
rect { fill: #0d1117 }
text { fill: #d5dbe3; font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre }
.bold { font-weight: 700 }
.red { fill: #ff7b72 }
.green { fill: #56d364 }
.cyan { fill: #76e3ea }
.dim { fill: #8b949e }
""".strip()
_CLASSES = {"1": "bold", "31": "red", "32": "green", "36": "cyan"}
_ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look; `classes` are those of the style sheet."""

    text: str
    classes: tuple[str, ...] = ()


Line = tuple[Run, ...]


def draw(report: str) -> str:
    """The picture as SVG: the same text gives the same bytes."""
    prompt = (Run("$ ", ("dim",)), Run(f"pytest --modelperf {MODEL}", ("bold",)))
    lines = [prompt, *shown_lines(report)]
    columns = max(len(plain(line)) for line in lines)
    width = 2 * MARGIN + round(columns * ADVANCE)
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
            f"<title>{escape(TITLE)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect {size} rx="8"/>',
            *(element for row, line in enumerate(lines) for element in _draw_line(row, line)),
            "</svg>\n",
        ]
    )


def _draw_line(row: int, line: Line) -> Iterator[str]:
    length = sum(len(run.text) for run in line)
    if not length:
        return
    y = MARGIN + LINE_HEIGHT * row + FONT_SIZE
    # The columns stay one below the other in any font.
    wide = f'textLength="{round(length * ADVANCE)}" lengthAdjust="spacingAndGlyphs"'
    spans = "".join(map(_draw_run, line))
    yield f'<text x="{MARGIN}" y="{y}" {wide} xml:space="preserve">{spans}</text>'


def _draw_run(run: Run) -> str:
    text = escape(run.text)
    return f'<tspan class="{" ".join(run.classes)}">{text}</tspan>' if run.classes else text


def shown_lines(report: str) -> Iterator[Line]:
    """The lines without those left out; a mark stands for them, and a table goes with its head."""
    kept: list[Line] = []
    is_left_out = False
    for line in map(read_line, report.splitlines()):
        text = plain(line)
        # What belongs to a line goes with it: its further lines, and the rule below a head.
        belongs = text.startswith("  ") or RULE.match(text) is not None
        is_left_out = is_left_out if belongs else LEFT_OUT.match(text) is not None
        if not is_left_out:
            kept.append(line)
        elif not kept or plain(kept[-1]) != CUT:
            kept.append((Run(CUT, ("dim",)),))
    yield from _without_empty(kept)


def _without_empty(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines without those empty ones that stand beside another empty one or a mark."""
    last = ""
    for line, following in zip(lines, [*lines[1:], ()], strict=True):
        text = plain(line)
        if text or (last not in {"", CUT} and plain(following) != CUT):
            if text != CUT or last != CUT:
                yield line
            last = text


def plain(line: Line) -> str:
    return "".join(run.text for run in line)


def read_line(line: str) -> Line:
    """A line of a terminal by its colours, which end with the line."""
    runs: list[Run] = []
    classes: tuple[str, ...] = ()
    at = 0
    for found in _ESCAPE.finditer(line):
        if found.start() > at:
            runs.append(Run(line[at : found.start()], classes))
        at = found.end()
        for code in found[1].split(";"):
            classes = (*classes, _CLASSES[code]) if code in _CLASSES else ()
    if line[at:]:
        runs.append(Run(line[at:], classes))
    return tuple(runs)


def measure() -> str:
    """What pytest shows of the changed model."""
    with TemporaryDirectory(prefix="modelperf-") as made:
        project = Path(made)
        (project / "models").mkdir()
        # It is the root, whatever lies above.
        (project / "pytest.ini").write_text("[pytest]\n")
        model = onnx.load(LIGHT)
        onnx.save(model, project / MODEL)
        _pytest(project, "--modelperf-update-baseline")
        slow_down(model)
        onnx.save(model, project / MODEL)
        return _pytest(project)


def slow_down(model: onnx.ModelProto) -> None:
    *_, last = (node for node in model.graph.node if node.op_type == "Relu")
    last.op_type = "Elu"


def _pytest(project: Path, *arguments: str) -> str:
    plugin = ("-p", "pytest_modelperf.plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "--color=yes", "--modelperf", MODEL, *arguments],
        cwd=project,
        env={
            **os.environ,
            "COLUMNS": f"{COLUMNS}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    return done.stdout.replace(str(project), "/project")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="run the build that fails first")
    if parser.parse_args().measure:
        REPORT.write_text(measure(), "utf-8")
    PICTURE.write_text(draw(REPORT.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
