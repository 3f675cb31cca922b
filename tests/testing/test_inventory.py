"""Every adapter is found by its name and shown to stop; what is not is named."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnstop
from turnstop.testing import inventory
from turnstop.testing._loading import Missing
from turnstop.testing.inventory import NoRemoteWork, Probed, load_probes, read_inventory, violations

STOPPABLE = """
class Turn:
    async def follow(self, emit): ...
    async def cancel(self, sent): ...
"""


class Site:
    """A folder of installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, name: str, source: str, **entries: str) -> None:
        """A module, and a distribution of it: `adapters="mine = theirs:open_mine"`."""
        (self.path / f"{name}.py").write_text(textwrap.dedent(source))
        folder = self.path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = (f"[turnstop.{group}]\n{lines}\n" for group, lines in entries.items())
        (folder / "entry_points.txt").write_text("\n".join(groups))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    for name in ("theirs", "others"):
        sys.modules.pop(name, None)


def test_every_adapter_here_is_shown() -> None:
    assert violations() == []


def test_every_module_of_adapters_is_found() -> None:
    folder = Path(turnstop.__file__).parent / "adapters"
    names = {path.stem for path in folder.iterdir() if not path.name.startswith("__")}
    assert {*read_inventory().adapters} == names


def test_nothing_is_imported_to_find_them(site: Site) -> None:
    site.install(
        "theirs", "1 / 0", adapters="mine = theirs:open_mine", probes="mine = theirs:Probe"
    )
    script = (
        f"import sys; sys.path[:0] = [{str(site.path)!r}, {str(Path.cwd())!r}]\n"
        "from turnstop.testing.inventory import read_inventory, violations\n"
        "assert 'mine' in read_inventory().adapters; violations(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert not {"theirs", "a2a", "httpx"} & {*modules}
    assert not [name for name in modules if name.startswith("turnstop.adapters.")]


def test_an_adapter_of_another_package_is_shown_by_its_probe(site: Site) -> None:
    source = """
        def open_mine(): ...
        from turnstop.testing.probes.local import LocalProbe as MineProbe
        MORE = [MineProbe, MineProbe]
    """
    site.install(
        "theirs", source, adapters="mine = theirs:open_mine", probes="mine = theirs:MineProbe"
    )
    site.install("others", "", adapters="more = theirs:open_mine", probes="more = theirs:MORE")
    assert violations() == []
    assert [one.__name__ for one in load_probes("mine")] == ["LocalProbe"]
    assert len(load_probes("more")) == 2


@pytest.mark.parametrize(
    ("source", "entries", "why"),
    [
        ("", {"adapters": "mine = theirs:open_mine"}, "mine has no probe"),
        ("class P: ...", {"probes": "mine = theirs:P"}, "mine is no adapter"),
        (
            "",
            {"adapters": "mine = theirs:x", "probes": "mine = theirs:P"},
            "mine has the probe theirs:P: there is none",
        ),
        (
            "",
            {"adapters": "mine = theirs:x", "probes": "mine = nowhere:P"},
            "mine has the probe nowhere:P: there is none",
        ),
        (
            STOPPABLE + "PIN = NoRemoteWork('it does nothing')",
            {"adapters": "mine = theirs:x", "probes": "mine = theirs:PIN"},
            "mine is pinned NoRemoteWork, and has the remote turn Turn (theirs.py:2)",
        ),
        (
            "def open_mine(): ...\nPIN = NoRemoteWork('it does nothing')",
            {"adapters": "mine = theirs:x", "probes": "mine = theirs:PIN"},
            "mine is pinned NoRemoteWork, and has open_mine (theirs.py:1)",
        ),
        (
            "from json import load as open_mine\n__all__ = ['open_mine']\n"
            "PIN = NoRemoteWork('it does nothing')",
            {"adapters": "mine = theirs:x", "probes": "mine = theirs:PIN"},
            "mine is pinned NoRemoteWork, and has open_mine (theirs.py:1)",
        ),
        (
            "PIN = NoRemoteWork('it does nothing')",
            {"adapters": "mine = nowhere.deep:x", "probes": "mine = theirs:PIN"},
            "mine is registered as nowhere.deep:x: there is no such module",
        ),
        (
            "PIN = NoRemoteWork('it does nothing')",
            {"adapters": "mine = theirs.deep:x", "probes": "mine = theirs:PIN"},
            "mine is registered as theirs.deep:x: there is no such module",
        ),
        (
            "PIN = NoRemoteWork(' ')",
            {"adapters": "mine = theirs:x", "probes": "mine = theirs:PIN"},
            "mine is pinned NoRemoteWork, and no reason is given",
        ),
        (
            "class P: ...",
            {"adapters": "codex = theirs:x"},
            "codex is turnstop.adapters.codex and theirs:x under turnstop.adapters",
        ),
        ("class P: ...", {"probes": "codex = theirs:P"}, "codex is one of turnstop's own"),
    ],
)
def test_what_is_wrong_is_named(source: str, entries: dict[str, str], why: str, site: Site) -> None:
    site.install("theirs", source, **entries)
    (found,) = violations()
    assert why in found


def test_a_pin_with_a_reason_will_do(site: Site) -> None:
    source = """
        from json import load as open_it
        def translate(): ...
        __version__ = "1.0"
        PIN: object = turnstop.testing.inventory.NoRemoteWork('it translates events')
    """
    site.install("theirs", source, adapters="mine = theirs", probes="mine = theirs:PIN")
    assert violations() == []
    with pytest.raises(LookupError, match="mine has no remote work, and no probe: it translates"):
        load_probes("mine")


def test_a_package_is_searched_to_its_last_module(site: Site) -> None:
    folder = site.path / "theirs"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("1 / 0")
    (folder / "deep" / "turn.py").write_text(STOPPABLE)
    found = read_inventory()
    pinned = inventory.Inventory(
        {**found.adapters, "mine": "theirs"}, {**found.shown, "mine": NoRemoteWork("it is fine")}
    )
    assert violations(pinned) == [
        "mine is pinned NoRemoteWork, and has the remote turn Turn (turn.py:2): it needs a probe"
    ]


def test_an_own_adapter_that_is_taken_off_the_table_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = {name: shown for name, shown in inventory.OWN.items() if name != "codex"}
    monkeypatch.setattr(inventory, "OWN", listed)
    (found,) = violations()
    assert found.startswith("codex has no probe")


def test_our_own_adapters_could_not_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {name: NoRemoteWork("so they say") for name in inventory.OWN}
    monkeypatch.setattr(inventory, "OWN", pins)
    named = {text.partition(" ")[0] for text in violations()}
    assert named == {*pins}


def test_a_missing_extra_is_told_before_anything_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Probed(("nowhere:P",), needs=("nonesuch_x",), install="pip install 'turnstop[x]'")
    monkeypatch.setattr(inventory, "OWN", {**inventory.OWN, "a2a": shown})
    with pytest.raises(Missing, match=r"a2a needs nonesuch_x: pip install 'turnstop\[x\]'"):
        load_probes("a2a")


def test_the_real_program_may_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Probed(("x:P",), real=("x:R",), real_needs=("nonesuch_r",), real_install="pip install r")
    monkeypatch.setattr(inventory, "OWN", {**inventory.OWN, "a2a": real})
    with pytest.raises(Missing, match="a2a needs nonesuch_r: pip install r"):
        load_probes("a2a", real=True)


def test_a_module_that_another_package_lacks_is_missing_too(site: Site) -> None:
    site.install(
        "theirs", "import nonesuch_x", adapters="mine = theirs:x", probes="mine = theirs:P"
    )
    with pytest.raises(Missing, match="theirs needs nonesuch_x, which is not installed"):
        load_probes("mine")


def test_an_unknown_name_is_told_what_there_is(site: Site) -> None:
    site.install("theirs", "", adapters="mine = theirs:open_mine")
    with pytest.raises(LookupError, match="mine has no probe"):
        load_probes("mine")
    with pytest.raises(LookupError, match=r"there is no adapter nope; there are a2a, .*, mine"):
        load_probes("nope")
    with pytest.raises(LookupError, match="local has no probe of the real program"):
        load_probes("local", real=True)
