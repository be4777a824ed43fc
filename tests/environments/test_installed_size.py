"""The bytes of a distribution with what it requires, by the files that pip noted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_modelperf.environments.installing import installed_size
from pytest_modelperf.errors import UsageError


def install(site: Path, name: str, size: int, requires: Sequence[str] = ()) -> None:
    """A distribution with one module of this many bytes, as an installer leaves it."""
    (site / f"{name}.py").write_bytes(b"#" * size)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "RECORD").write_text(f"{name}.py,,\n{name}_missing.py,,\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_a_distribution_requires_belongs_to_it(site: Path) -> None:
    install(site, "mp_app", 10, ["mp-lib>=1", "mp_extra; extra == 'all'", "mp_absent"])
    install(site, "mp_lib", 200, ["mp_base", "mp_other; sys_platform == 'nowhere'"])
    install(site, "mp_base", 3_000_000, ["mp_app"])
    install(site, "mp_extra", 40_000)
    install(site, "mp_other", 500_000)
    found = installed_size("mp_app")
    assert dict(found.sizes) == {"mp-app": 10, "mp-lib": 200, "mp-base": 3_000_000}
    assert found.total == 3_000_210
    assert found.describe() == "mp-app and 2 requirements; mp-base takes 3.0 MB"
    assert installed_size("mp_app[all]").total == 3_040_210


def test_a_distribution_alone_is_named_alone(site: Path) -> None:
    install(site, "mp_base", 7)
    assert installed_size("mp_base").describe() == "mp-base"


@pytest.mark.parametrize("name", ["mp_nowhere", "no name", "", "\x1b[31m"])
def test_a_distribution_that_is_not_installed_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="install_bytes: there is no distribution") as caught:
        installed_size(name)
    assert "\x1b" not in caught.value.message
