"""Every Python example of the README and of docs/ runs, and prints what the page says.

The ```python blocks of a page, in order, are one program; it prints exactly its ```text blocks, in
order, where the page has any. A page whose program needs more than the core says so in a comment,
`<!-- needs: a2a, codex -->`, with names from `NEEDS` or of the lab's programs.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import turnstop
import turnstop.abc
import turnstop.events
import turnstop.feeds
import turnstop.testing
import turnstop.transports.aio
from turnstop.testing import ABILITIES, LEVERS, OBLIGATIONS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Need:
    there: Callable[[], bool]
    install: str


def _has(program: str) -> bool:
    try:
        from turnstop.lab import MissingProgram, find_program
    except ImportError:
        return False
    try:
        find_program(program)
    except MissingProgram:
        return False
    return True


A2A_SERVER = ("a2a", "uvicorn", "sse_starlette")
NEEDS = {
    "a2a-server": Need(
        lambda: all(map(importlib.util.find_spec, A2A_SERVER)), "pip install 'turnstop[bench]'"
    ),
    "a2a": Need(lambda: importlib.util.find_spec("a2a") is not None, "pip install 'turnstop[a2a]'"),
    "aio": Need(
        lambda: importlib.util.find_spec("trio_asyncio") is not None, "pip install 'turnstop[aio]'"
    ),
    "letta": Need(
        lambda: importlib.util.find_spec("letta_client") is not None,
        "pip install 'turnstop[letta]'",
    ),
    "copilot-sdk": Need(
        lambda: importlib.util.find_spec("copilot") is not None, "pip install 'turnstop[copilot]'"
    ),
    "httpx2": Need(
        lambda: importlib.util.find_spec("httpx2") is not None, "pip install 'turnstop[opencode]'"
    ),
    "inbox": Need(
        lambda: importlib.util.find_spec("tenacity") is not None, "pip install 'turnstop[inbox]'"
    ),
    "lab": Need(lambda: importlib.util.find_spec("h11") is not None, "pip install 'turnstop[lab]'"),
}


def need(name: str) -> Need:
    """What else is needed is a program of the lab's."""
    program = Need(lambda: _has(name), f"turnstop lab install {name}")
    return NEEDS.get(name, program)


def is_required(name: str) -> bool:
    """As in `tests/real`, which the core's tests do without."""
    if os.environ.get("TURNSTOP_REAL") != "require":
        return False
    if name in NEEDS or os.environ.get("TURNSTOP_LAB") == "all":
        return True
    from turnstop.lab import PINS

    return not PINS[name].optional


@attrs.frozen
class Example:
    program: str
    output: str | None
    needs: tuple[str, ...]


def read_example(page: str) -> Example | None:
    blocks = FENCE.findall(page)
    strange = {info for info, _ in blocks} & {"py", "python3", "pycon"}
    assert not strange, f"a block that no test would run: {strange}"
    program = "\n".join(code for info, code in blocks if info == "python")
    texts = [code for info, code in blocks if info == "text"]
    needs = re.findall(r"^<!-- needs: (.*) -->$", page, re.MULTILINE)
    names = tuple(name.strip() for line in needs for name in line.split(","))
    return Example(program, "".join(texts) if texts else None, names) if program else None


def check_needs(example: Example) -> None:
    missing = [name for name in example.needs if not need(name).there()]
    if missing:
        lines = "; ".join(need(name).install for name in missing)
        if any(map(is_required, missing)):
            pytest.fail(f"{missing} is not here: {lines}")
        pytest.skip(f"{missing} is not here: {lines}")


def run(program: str, where: Path) -> subprocess.CompletedProcess[str]:
    script = where / "example.py"
    script.write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def check_page(text: str, where: Path) -> None:
    example = read_example(text)
    if example is None:
        return
    check_needs(example)
    done = run(example.program, where)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if example.output is not None:
        assert done.stdout == example.output


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_example_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    check_page(page.read_text(encoding="utf-8"), tmp_path)


def test_readme_has_a_program() -> None:
    example = read_example((ROOT / "README.md").read_text(encoding="utf-8"))
    assert example is not None
    assert example.output
    assert example.needs == ()


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        "```python\nraise SystemExit(1)\n```\n",
        "```python\nimport warnings\nwarnings.warn('old')\n```\n",
        "```py\nprint(1)\n```\n",
    ],
    ids=["other output", "it fails", "it warns", "unknown fence"],
)
def test_a_page_that_lies_is_found(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_page(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def _section(page: str, heading: str) -> list[str]:
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_reference_lists_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
    events = [name for name, kind in vars(turnstop.events).items() if _is_event(name, kind)]
    assert sorted(_section(page, "turnstop")) == turnstop.__all__
    assert sorted(_section(page, "turnstop.abc")) == sorted(turnstop.abc.__all__)
    assert sorted(_section(page, "turnstop.events")) == sorted(events)
    assert sorted(_section(page, "turnstop.feeds")) == sorted(turnstop.feeds.__all__)
    assert sorted(_section(page, "turnstop.testing")) == sorted(turnstop.testing.__all__)


def test_reference_lists_every_adapter_and_the_bridge() -> None:
    page = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
    assert sorted(_section(page, "turnstop.transports.aio")) == sorted(
        turnstop.transports.aio.__all__
    )
    section = page.partition("\n## turnstop.adapters\n")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| `"))
    folder = Path(turnstop.__file__).parent / "adapters"
    paths = (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    known = [name for path in paths for name in _all_of(path)]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(known)


def _all_of(module: Path) -> list[str]:
    """Without importing it: that may take an extra."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ] or [[]]
    return [str(name) for name in names]


def test_reference_lists_every_obligation() -> None:
    page = (ROOT / "docs" / "reference" / "obligations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\| (.*?) ?\|$", page, re.MULTILINE)
    told = {name: (says, re.findall(r"\w+", takes + needs)) for name, says, takes, needs in rows}
    assert list(told) == list(OBLIGATIONS)
    for name, (says, needs) in told.items():
        assert (says, sorted(needs)) == (OBLIGATIONS[name].says, sorted(OBLIGATIONS[name].needs))
    assert _section(page, "Abilities") == list(ABILITIES)
    assert _section(page, "Levers") == list(LEVERS)


def _is_event(name: str, kind: object) -> bool:
    return name == "Event" or kind in turnstop.events.Event.__args__
