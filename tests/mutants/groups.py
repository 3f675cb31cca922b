"""The groups of modules that mutants are made of: their tests, their survivors, their counts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import attrs
from mutate import Mutant, mutants_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

MODULES = {
    "kernel": (
        "_service",
        "_gate",
        "_admission",
        "_unwrap",
        "_watch",
        "_workers",
        "_house",
        "_receipt",
        "_calls",
        "_account",
        "_life",
        "_turn",
        "_rooms",
    ),
    "transports": (
        "transports._lines",
        "transports.backlog",
        "transports.children",
        "transports.dialect",
        "transports.distribution",
        "transports.eventstream",
        "transports.framed",
        "transports.httpcalls",
        "transports.jsonrpc",
        "transports.listening",
        "transports.loopback",
        "transports.offspring",
        "transports.orphans",
        "transports.owners",
        "transports.pace",
        "transports.peer",
        "transports.process",
        "transports.proctable",
        "transports.reading",
        "transports.restart",
        "transports.serving",
        "transports.sse",
        "transports.version",
    ),
    "aio": (
        "transports.aio._aio",
        "transports.aio._call",
        "transports.aio._early",
        "transports.aio._filing",
        "transports.aio._forsaking",
        "transports.aio._host",
        "transports.aio._hosted",
        "transports.aio._iterating",
        "transports.aio._jobs",
        "transports.aio._joining",
        "transports.aio._nesting",
        "transports.aio._records",
        "transports.aio._threaded",
        "transports.aio._threads",
    ),
    "executor": (
        "executor._executor",
        "executor._job",
        "executor._run",
        "executor._task",
        "executor._threads",
    ),
}
# The slow ones of the bridge's tests, each in a process of its own: asked last.
SLOW = ("test_aio_programs.py", "test_aio_early_imports.py")
GROUP_OF = {module: group for group, modules in MODULES.items() for module in modules}
SHARE = 0.95
Key = tuple[str, str, str]


@attrs.frozen
class Count:
    """What came of a group's mutants when all of them were last run."""

    total: int
    caught: int


def path_of(module: str) -> Path:
    return Path("turnstop", *module.split(".")).with_suffix(".py")


def make_mutants(modules: Iterable[str]) -> list[Mutant]:
    return [mutant for module in modules for mutant in _make(module)]


@cache
def _make(module: str) -> list[Mutant]:
    return mutants_of(module, (ROOT / path_of(module)).read_text(encoding="utf-8"))


def tests_of(module: str) -> list[list[str]]:
    """The files that a mutant of the module is run against: its own, and then the others."""
    group = GROUP_OF[module]
    if group == "aio":
        files = sorted((ROOT / "tests" / "transports").glob("test_aio*.py"))
        stages = ([f for f in files if f.name not in SLOW], [f for f in files if f.name in SLOW])
    else:
        own = f"test_{module.rpartition('.')[2].strip('_')}.py"
        files = sorted((ROOT / "tests" / group).glob("test_*.py"))
        files = [file for file in files if not file.name.startswith("test_aio")]
        stages = ([f for f in files if f.name == own], [f for f in files if f.name != own])
    return [[str(file.relative_to(ROOT)) for file in stage] for stage in stages if stage]


def read_reasons(group: str) -> dict[Key, str]:
    with (HERE / "survivors" / f"{group}.toml").open("rb") as file:
        listed = tomllib.load(file).get("survivor", [])
    return {(row["module"], row["function"], row["change"]): row["reason"] for row in listed}


def read_all_reasons() -> dict[Key, str]:
    return {key: reason for group in MODULES for key, reason in read_reasons(group).items()}


def read_counts() -> dict[str, Count]:
    with (HERE / "counts.toml").open("rb") as file:
        return {group: Count(**row) for group, row in tomllib.load(file).items()}
