"""The plugin: a test an obligation and probe, what was seen where it fails, and lightness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import turnstop
from turnstop.testing import OBLIGATIONS, inventory

pytest_plugins = ["pytester"]
PLUGIN = "turnstop.testing.plugin"
ROOT = str(Path(turnstop.__file__).parents[1])
HEAD = """
import pytest
from functools import partial
from turnstop.testing.bare import bare_probe
from turnstop.testing.probes.local import LocalProbe

class Liar(LocalProbe):
    name = "liar"
    unable = {**LocalProbe.unable, "end_seen": "who knows"}

class Confused(LocalProbe):
    name = "confused"
    unable = {"finish": "it never does"}
"""


def run(pytester: pytest.Pytester, mark: str, *args: str) -> pytest.RunResult:
    test = f"@pytest.mark.turnstop_probe([{mark}])\ndef test_it(obligation):\n    obligation()\n"
    pytester.makepyfile(f"{HEAD}\n{test}")
    options = ("-p", PLUGIN, "-p", "no:cacheprovider", "--strict-markers", "-W error")
    return pytester.runpytest_inprocess(*options, "-rs", "-v", *args)


def test_each_obligation_is_a_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, "LocalProbe")
    counts = result.parseoutcomes()
    assert counts["passed"] + counts["skipped"] == len(OBLIGATIONS)
    result.stdout.fnmatch_lines(["*::test_it?local-stop_ends_the_work? PASSED*"])
    result.stdout.fnmatch_lines(["*excused: a function speaks no protocol*"])


def test_what_was_seen_is_told_where_it_is_red(pytester: pytest.Pytester) -> None:
    result = run(pytester, "LocalProbe, Liar", "-k", "stop_ends_the_work")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E*A stop ends the work at the far end*"])
    result.stdout.fnmatch_lines(["E*the excuse is not true: who knows"])
    result.stdout.fnmatch_lines(["E*first: asked, sent +0.000 s, *: stopped*"])


def test_what_takes_a_lever_is_skipped(pytester: pytest.Pytester) -> None:
    result = run(pytester, "partial(bare_probe, object)", "-k", "garbage_is_bounded")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*::test_it?object-garbage_is_bounded? SKIPPED*"])
    result.stdout.fnmatch_lines(["*not run: takes the lever babble"])


def test_a_probe_that_contradicts_itself_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, "Confused", "-k", "stop_ends_the_work")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*says that it has no lever finish, and has one"])


def test_a_missing_extra_is_one_skip_and_breaks_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = inventory.Probed(("x:y",), needs=("nonesuch_x",), install="pip install x")
    monkeypatch.setattr(inventory, "OWN", {**inventory.OWN, "a2a": shown})
    result = run(pytester, "'a2a', 'local'", "-k", "a2a or local-stop_ends_the_work")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*a2a needs nonesuch_x: pip install x"])


def test_an_obligation_without_a_probe_is_a_mistake(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(obligation): obligation()")
    result = pytester.runpytest_inprocess("-p", PLUGIN)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*obligation takes @pytest.mark.turnstop_probe(?probe, ...?)*"])


@pytest.mark.parametrize("again", [(), ("-p", PLUGIN)], ids=["once", "named again"])
def test_it_is_light_where_it_is_installed(
    again: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkdir("site")
    info = folder / "turnstop_by_entry_point-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'[project.entry-points.pytest11]\n"{PLUGIN}" = "{PLUGIN}"' in declared
    (info / "entry_points.txt").write_text(f"[pytest11]\n{PLUGIN} = {PLUGIN}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), ROOT]))
    pytester.makepyfile(
        """
        import sys
        def test_it(request):
            assert request.config.pluginmanager.has_plugin("turnstop.testing.plugin")
            assert not {"hypothesis", "click", "a2a", "httpx", "h11", "rich"} & set(sys.modules)
        """
    )
    names = ("trio", "cacheprovider", "hypothesispytest", "schemathesis")
    blocked = [word for name in names for word in ("-p", f"no:{name}")]
    result = pytester.runpytest_subprocess(*blocked, *again)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("@mark([LocalProbe])\ndef test_it(obligation): pass", "nothing was checked"),
        ("@mark([])\ndef test_it(obligation): obligation()", "takes ?probe, ...?"),
        ("@mark([LocalProbe])\ndef test_it(): pass", "takes no obligation"),
        ("@mark([LocalProbe], only=1)\ndef test_it(obligation): obligation()", "nothing else"),
        ("@mark([object])\ndef test_it(obligation): obligation()", "is no probe"),
    ],
)
def test_what_checks_nothing_is_no_pass(pytester: pytest.Pytester, test: str, why: str) -> None:
    pytester.makepyfile(f"{HEAD}\nmark = pytest.mark.turnstop_probe\n\n{test}\n")
    result = pytester.runpytest_inprocess("-p", PLUGIN, "-k", "stop_ends_the_work or test_it")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*{why}*"])


def test_probes_of_one_name_are_told_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"{HEAD}\nclass Two(LocalProbe):\n    pass\n\n"
        "@pytest.mark.turnstop_probe([LocalProbe, Two])\n"
        "def test_it(obligation):\n    obligation()\n"
    )
    result = pytester.runpytest_inprocess("-p", PLUGIN, "-v", "-k", "stop_ends_the_work")
    result.stdout.fnmatch_lines(["*local(*Two)-stop_ends_the_work*PASSED*"])
