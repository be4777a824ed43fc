"""Whether weights could lie in huge pages of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.profiler.machine.pages import REMEDY, could_have_huge_pages

LARGE = 40_000_000
SETTING = "sys/kernel/mm/transparent_hugepage/enabled"
ASKED = dict([REMEDY.split("=", 1)])


def could(
    root: Path,
    setting: str | None = "always [madvise] never",
    weight_bytes: int = LARGE,
    environment: dict[str, str] | None = None,
    libc: str = "glibc 2.36",
) -> bool:
    if setting is not None:
        path = root / SETTING
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{setting}\n")
    return could_have_huge_pages(weight_bytes, root, environment or {}, libc)


def test_large_weights_could_where_the_system_gives_them_to_who_asks(tmp_path: Path) -> None:
    assert could(tmp_path)
    assert could(tmp_path, environment={"GLIBC_TUNABLES": "glibc.malloc.check=1"})


@pytest.mark.parametrize("setting", ["[always] madvise never", "always madvise [never]", "", None])
def test_another_system_gives_them_to_all_or_to_none(tmp_path: Path, setting: str | None) -> None:
    assert not could(tmp_path, setting)


def test_small_weights_fill_no_huge_page(tmp_path: Path) -> None:
    assert not could(tmp_path, weight_bytes=1_000_000)


@pytest.mark.parametrize("others", ["", ":glibc.malloc.check=1"])
def test_who_follows_the_advice_gets_it_no_more(tmp_path: Path, others: str) -> None:
    asked = {name: value + others for name, value in ASKED.items()}
    assert not could(tmp_path, environment=asked)


@pytest.mark.parametrize("libc", ["glibc 2.34", "glibc 2.4", "musl 1.2", "", "glibc 2.x"])
def test_not_every_library_can_ask(tmp_path: Path, libc: str) -> None:
    assert not could(tmp_path, libc=libc)
    assert could(tmp_path, libc="glibc 2.35")
    assert could(tmp_path, libc="glibc 3.0")
