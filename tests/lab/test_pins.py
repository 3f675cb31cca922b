from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from turnstop.lab import PINS
from turnstop.lab.environments import _CONFIGURE
from turnstop.lab.pins import HOME_VARIABLE, Pin, lab_home, platform_name

ROOT = Path(__file__).parents[2]
EXACT = {
    "npm": re.compile(r"(@[\w.-]+/)?[\w.-]+@\d+\.\d+\.\d+"),
    "PyPI": re.compile(r"[\w.-]+==\d+\.\d+\.\d+"),
}
every_pin = pytest.mark.parametrize("pin", PINS.values(), ids=list(PINS))


@every_pin
def test_every_package_is_pinned_exactly(pin: Pin) -> None:
    assert all(EXACT[pin.registry].fullmatch(package) for package in pin.requirements)


def test_a_run_of_the_tests_may_do_without_the_two_largest_alone() -> None:
    assert {pin.name for pin in PINS.values() if pin.optional} == {"opencode", "omp"}


@every_pin
def test_a_program_is_below_its_folder(pin: Pin) -> None:
    assert pin.paths
    assert pin.path == pin.paths[-1]
    assert not any(Path(path).is_absolute() or ".." in path or "{" in path for path in pin.paths)


def test_each_can_be_pointed_at_a_lab() -> None:
    assert list(_CONFIGURE) == list(PINS)


def test_what_the_extra_brings_is_what_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PINS["codex"].packages[0] in project["optional-dependencies"]["bench"]


@pytest.mark.parametrize(
    ("system", "machine", "name", "bun"),
    [
        ("linux", "x86_64", "linux-x64", "linux-x64"),
        ("linux", "aarch64", "linux-arm64", "linux-aarch64"),
        ("darwin", "arm64", "darwin-arm64", "darwin-aarch64"),
        ("darwin", "x86_64", "darwin-x64", "darwin-x64"),
    ],
)
def test_the_packages_of_a_system(
    system: str, machine: str, name: str, bun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.lab.pins.sys.platform", system)
    monkeypatch.setattr("turnstop.lab.pins.platform.machine", lambda: machine)
    assert platform_name() == name
    assert PINS["opencode"].requirements == (f"opencode-{name}@1.18.33",)
    assert PINS["omp"].paths[0] == f"node_modules/@oven/bun-{bun}/bin/bun"


def test_where_programs_are_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    assert lab_home() == Path("/home/someone/.cache/turnstop/lab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert lab_home() == Path("/caches/turnstop/lab")
    monkeypatch.setenv(HOME_VARIABLE, "here")
    monkeypatch.chdir(tmp_path)
    assert lab_home() == tmp_path / "here"


def row(pin: Pin) -> str:
    acp = "no" if pin.acp is None else f"`{' '.join(pin.acp)}`" if pin.acp else "always"
    sizes = f"{pin.download} MB | {pin.size} MB"
    return f"| `{pin.name}` | {pin.version} | {pin.registry} | {sizes} | {acp} |"


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs/how-to/lab.md").read_text()
    assert [line for line in page.splitlines() if re.match(r"\| `[\w-]+` \| \d", line)] == [
        row(pin) for pin in PINS.values()
    ]
    for pin in PINS.values():
        assert not pin.optional or f"--except {pin.name}" in page
