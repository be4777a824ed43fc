"""Makes the pictures of docs/comparing-versions.md: models, reports, and what a browser shows.

python docs/pictures/make.py [FOLDER]

It needs the extra `report`, playwright and a Chromium. The reports stay in FOLDER, if one is named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1320, 1000

CLASSIFIER = ("classifier-fp32.onnx", "classifier-int8.onnx")
ENCODER = ("encoder-v1.onnx", "encoder-v2.onnx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    wanted = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as made:
        folder = wanted or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        run(sys.executable, str(ROOT / "examples/versions/make_versions.py"), str(folder))
        compare(folder, CLASSIFIER, "classifier.html", "--batch", "1,4", "--cores", "1,2")
        compare(folder, ENCODER, "encoder.html", "--dim", "seq=64")
        sweep(folder, CLASSIFIER, "sweep.html")
        take_pictures(folder)


def take_pictures(folder: Path) -> None:
    with browser() as page:
        show(page, folder / "classifier.html")
        picture(page, "types", "classifier-types")
        show(page, folder / "encoder.html")
        page.locator("#kernels tbody tr:not(.spacer)").first.click()
        picture(page, "kernels", "encoder-kernels")
        show(page, folder / "sweep.html")
        picture(page, "chart", "sweep-chart")


def compare(folder: Path, models: tuple[str, str], html: str, *options: str) -> None:
    # A worse model is an exit status of 1, and no reason to stop.
    modelperf(folder, "compare", *models, *options, "--html", html, allowed=(0, 1))


def sweep(folder: Path, models: tuple[str, str], html: str) -> None:
    before, after = models
    ranges = ("--batch", "1,2,4,8", "--cores", "1,2", "--streams", "1,2")
    limit = ("--latency-threshold", "10")
    modelperf(folder, "sweep", after, "--against", before, *ranges, *limit, "--html", html)


def modelperf(folder: Path, *arguments: str, allowed: tuple[int, ...] = (0,)) -> None:
    print("$ modelperf", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest_modelperf", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        check=False,
    )
    if done.returncode not in allowed:
        sys.exit(f"modelperf ended with {done.returncode}")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextmanager
def browser() -> Iterator[Page]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = started.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        yield page
        started.close()


def show(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    page.wait_for_function("document.documentElement.dataset.state")
    # It would lie over what is below it.
    page.add_style_tag(content="#controls { position: static }")


def picture(page: Page, section: str, name: str) -> None:
    part = page.locator(f"#{section}")
    part.scroll_into_view_if_needed()
    part.screenshot(path=HERE / f"{name}.png")
    print(f"{name}.png", flush=True)


if __name__ == "__main__":
    main()
