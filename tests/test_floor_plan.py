"""The floor plan: imports only go down, and the habits that a machine can check.

The floors stand here as data. A rule is a function from a tree to its violations; each is shown to
bite by a violation planted in a small tree.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

import turnstop

FLOORS: dict[str, tuple[str, ...]] = {
    "F0": ("abc", "events", "_errors", "_ending", "_records", "_budget", "_functions"),
    "F1": (
        "_service",
        "_gate",
        "_admission",
        "_unwrap",
        "_watch",
        "_workers",
        "_calls",
        "_house",
        "_receipt",
    ),
    "F2": ("_account", "_life", "_turn"),
    "F3": ("_rooms",),
    "S": ("_identity", "_sqlite"),
    "F4": ("_inbox", "journal", "claims", "executor", "observe"),
    "F5": ("_bridge", "feeds", "server"),
    "T": ("transports",),
    "A": ("adapters",),
    "L": ("lab",),
    "F6": ("testing",),
    "F7": ("cli", "__main__"),
    "face": ("",),
}
CORE = ("F0", "F1", "F2", "F3")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "F0": ("F0",),
    "F1": ("F0", "F1"),
    "F2": ("F0", "F1", "F2"),
    "F3": ("F0", "F1", "F2"),
    # What opens a file closes it whatever comes: `see_through`.
    "S": ("S", "_service", "_unwrap"),
    "F4": (*CORE, "S"),
    "F5": (*CORE, "S", "F4", "F5"),
    "T": ("F0", "T", "_service", "_unwrap", "_identity"),
    "A": ("F0", "T"),
    "L": ("F0", "T", "L", "_service", "_unwrap"),
    "F6": (*CORE, "S", "F4", "F5", "T", "A", "L", "F6", "face"),
    "F7": (*CORE, "S", "F4", "F5", "T", "A", "L", "F6", "F7", "face"),
    "face": (*CORE, "S", "F4", "F5"),
    "none": (),
}
TRIO = {"attrs", "outcome", "trio"}
OUTSIDERS = {"F0": {"attrs"}, "F1": TRIO, "F2": TRIO, "F3": TRIO, "S": TRIO}
ONLY_IN = {
    "trio_asyncio": {"transports.aio"},
    "asyncio": {
        "executor._a2a_handler",
        "executor._a2a_requests",
        "executor._a2a_work",
        "lab.a2a_server",
        "lab._steering",
        "lab._parlant_engine",
        "transports.aio",
        "testing.recording.parlant._engine",
        "testing.recording.parlant._processing",
        "testing.recording.parlant._server",
        "testing.recording.parlant._tasks",
        "cli.band_child",
        "cli.bench.raw_parlant",
        "cli.bench.copilot_child",
    },
}
HEAVY = (
    "trio_asyncio",
    "a2a",
    "httpx",
    "httpx2",
    "h11",
    "starlette",
    "tenacity",
    "click",
    "rich",
    "sqlite3",
)
MODULE_LINES = {"_turn": 300}
MOST_MODULE_LINES = 400
MOST_FUNCTION_LINES = 29
MOST_NAMES = 24
ADAPTERS_LEAVE_ALONE = ("move_on_", "fail_")
# `turnstop.testing.Probe` says of all its levers what a cancellation leaves, once.
LEVERS = {"say", "ask", "finish", "fail", "say_end_again", "leave", "die", "cut", "babble"}
CALLED_BY_THE_KERNEL = {"start", "follow", "cancel", "kill", "leftovers", "sweep", "forget"}


@attrs.frozen
class Module:
    name: str
    """Dotted, below turnstop; the face is the empty string."""
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        """What its floor is looked up by."""
        return self.name.partition(".")[0]

    @property
    def is_private(self) -> bool:
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def floor(self) -> str:
        return next((floor for floor, units in FLOORS.items() if self.unit in units), "none")


Tree = dict[str, Module]


def read_tree(root: Path) -> Tree:
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, is_package, text, ast.parse(text))
    return found


def imports_of(module: Module, tree: Tree) -> Iterator[tuple[str, int, bool]]:
    """What it imports: absolute name, line, and whether at module level."""
    top = {id(node) for node in module.tree.body}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(module, node)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                below = full.removeprefix("turnstop").removeprefix(".")
                is_module = full.startswith("turnstop.") and below in tree
                yield (full if is_module else base), node.lineno, id(node) in top


def _base_of(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = ["turnstop", *module.name.split(".")] if module.name else ["turnstop"]
    up = node.level - (1 if module.is_package else 0)
    parts = package[: len(package) - up]
    return ".".join([*parts, node.module] if node.module else parts)


def inner_imports(module: Module, tree: Tree) -> Iterator[tuple[Module, int]]:
    for name, line, _ in imports_of(module, tree):
        if name == "turnstop" or name.startswith("turnstop."):
            below = name.removeprefix("turnstop").removeprefix(".")
            if below != module.name and below in tree:
                yield tree[below], line


def every_module_has_a_floor(tree: Tree) -> list[str]:
    known = {unit for units in FLOORS.values() for unit in units}
    return [f"{name} stands on no floor" for name, m in tree.items() if m.unit not in known]


def imports_only_go_down(tree: Tree) -> list[str]:
    wrong = []
    for module in tree.values():
        allowed = MAY_IMPORT[module.floor]
        for target, line in inner_imports(module, tree):
            own = _part(module) == _part(target)
            if not (own or target.floor in allowed or target.unit in allowed):
                wrong.append(f"{module.name}:{line} imports {target.name or 'the face'}")
    return wrong


def _part(module: Module) -> str:
    """Whose parts may import each other: a package, and of the adapters each by itself."""
    names = module.name.split(".")
    return ".".join(names[: 2 if module.floor == "A" else 1])


def no_circles(tree: Tree) -> list[str]:
    below = {m.name: {t.name for t, _ in inner_imports(m, tree)} for m in tree.values()}
    left = dict(below)
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    return [
        f"{name} is in a circle with {sorted(needs & left.keys())}" for name, needs in left.items()
    ]


def the_core_imports_few_packages(tree: Tree) -> list[str]:
    wrong = []
    for module in tree.values():
        if (allowed := OUTSIDERS.get(module.floor)) is None:
            continue
        for name, line, _ in imports_of(module, tree):
            package = name.partition(".")[0]
            if package not in {*allowed, "turnstop"} and package not in sys.stdlib_module_names:
                wrong.append(f"{module.name}:{line} imports {package}")
    return wrong


def asyncio_stays_in_its_place(tree: Tree) -> list[str]:
    wrong = []
    for module in tree.values():
        for name, line, top in imports_of(module, tree):
            package = name.partition(".")[0]
            homes = ONLY_IN.get(package)
            home = homes is None or any(f"{module.name}.".startswith(f"{one}.") for one in homes)
            if not home and (top or package != "asyncio"):
                wrong.append(f"{module.name}:{line} imports {package}")
    return wrong


def modules_are_short(tree: Tree) -> list[str]:
    lengths = {m.name: len(m.text.splitlines()) for m in tree.values()}
    return [
        f"{name} has {lines} lines"
        for name, lines in lengths.items()
        if lines > MODULE_LINES.get(name, MOST_MODULE_LINES)
    ]


def functions_are_short(tree: Tree) -> list[str]:
    wrong = []
    for module in tree.values():
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = _code_lines(node, module.text)
                if lines > MOST_FUNCTION_LINES:
                    wrong.append(f"{module.name}:{node.lineno} {node.name} has {lines} lines")
    return wrong


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> int:
    """Lines of its body, without docstring, blank lines and lines of comment."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first = body[0].lineno if body else node.lineno
    lines = text.splitlines()
    stripped = (line.strip() for line in lines[first - 1 : node.end_lineno])
    return sum(1 for line in stripped if line and not line.startswith("#"))


def adapters_leave_the_stop_to_the_kernel(tree: Tree) -> list[str]:
    wrong = []
    for module in (m for m in tree.values() if m.floor == "A"):
        for node in ast.walk(module.tree):
            for word in _words(node):
                if word == "shield" or word.startswith(ADAPTERS_LEAVE_ALONE) or "Lock" in word:
                    wrong.append(f"{module.name}:{getattr(node, 'lineno', '?')} says {word}")
    return wrong


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.name.rpartition(".")[2]


def the_faces_are_sorted_and_small(tree: Tree) -> list[str]:
    wrong = []
    for face in _faces(tree):
        names = _all_of(face)
        if names != sorted(names):
            wrong.append(f"__all__ of {face.name or 'the face'} is not sorted")
        if face.name == "" and len(names) > MOST_NAMES:
            wrong.append(f"the face has {len(names)} names")
    return wrong


def public_names_say_what_they_are(tree: Tree) -> list[str]:
    return [
        f"{face.name or 'turnstop'}.{name} has no docstring"
        for face in _faces(tree)
        for name in _all_of(face)
        if not name.startswith("__") and not _is_documented(face, name, tree)
    ]


def _faces(tree: Tree) -> list[Module]:
    return [tree[name] for name in ("", "abc") if name in tree]


def _all_of(module: Module) -> list[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _is_documented(module: Module, name: str, tree: Tree) -> bool:
    for node, after in zip(module.tree.body, [*module.tree.body[1:], None], strict=True):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == name:
                return ast.get_docstring(node) is not None
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in map(ast.unparse, targets):
                return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        elif isinstance(node, ast.ImportFrom):
            home = _base_of(module, node).removeprefix("turnstop").removeprefix(".")
            if any((alias.asname or alias.name) == name for alias in node.names):
                return home in tree and _is_documented(tree[home], name, tree)
    return False


def public_coroutines_say_what_a_cancel_leaves(tree: Tree) -> list[str]:
    """Not the command line's, nor what only the kernel or the kit calls: their contracts say it."""
    wrong = []
    shown = {name for m in tree.values() if not m.is_private for name in _all_of(m)}
    for module in (m for m in tree.values() if m.floor != "F7"):
        for owner, function in _public_coroutines(module):
            if owner and function.name in CALLED_BY_THE_KERNEL:
                continue
            if module.name.startswith("testing.obligations") or (
                module.floor == "F6" and owner and function.name in LEVERS
            ):
                continue
            if module.is_private and (owner or function.name) not in shown:
                continue
            if "**Cancellation:**" not in (ast.get_docstring(function) or ""):
                wrong.append(f"{module.name}:{function.lineno} {function.name}")
    return wrong


def _public_coroutines(module: Module) -> Iterator[tuple[str, ast.AsyncFunctionDef]]:
    bodies = [("", module.tree.body)]
    bodies += [
        (node.name, node.body)
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    for owner, body in bodies:
        for node in body:
            if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_"):
                yield owner, node


Rule = Callable[[Tree], list[str]]
RULES: tuple[Rule, ...] = (
    every_module_has_a_floor,
    imports_only_go_down,
    no_circles,
    the_core_imports_few_packages,
    asyncio_stays_in_its_place,
    modules_are_short,
    functions_are_short,
    adapters_leave_the_stop_to_the_kernel,
    the_faces_are_sorted_and_small,
    public_names_say_what_they_are,
    public_coroutines_say_what_a_cancel_leaves,
)


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree(Path(turnstop.__file__).parent)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_holds(rule: Rule, tree: Tree) -> None:
    assert rule(tree) == []


def test_import_is_light() -> None:
    script = "import sys, turnstop; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[0] for name in done.stdout.split()} & {*HEAVY} == set()


def test_the_mutants_are_made_of_all_the_kernel_and_of_all_transports() -> None:
    script = Path(__file__).parent / "mutants" / "groups.py"
    (listed,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(script.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    )
    folder = Path(turnstop.__file__).parent / "transports"
    paths = [path.relative_to(folder.parent).with_suffix("") for path in folder.rglob("*.py")]
    transports = {".".join(path.parts) for path in paths if path.name != "__init__"}
    assert sorted(listed["kernel"]) == sorted(FLOORS["F1"] + FLOORS["F2"] + FLOORS["F3"])
    assert {*listed["transports"], *listed["aio"]} == transports


LONG = "def f() -> None:\n" + "    print()\n" * 30
COMMENTED = (
    'def f() -> None:\n    """One.\n\n    Two.\n    """\n' + "    # why\n\n    print()\n" * 29
)
RETIRE = 'async def retire(self) -> None:\n        """**Cancellation:** nothing is left."""'
CLEAN = {
    "__init__": 'from ._rooms import Rooms as Rooms\n\n__all__ = ["Rooms"]\n',
    "abc": "from ._errors import Lost as Lost\n",
    "_errors": "import attrs\n\nclass Lost(Exception):\n    pass\n",
    "_service": "import trio\nfrom . import _unwrap\n",
    "_unwrap": "import trio\n" + COMMENTED,
    "_turn": "from ._service import trio\nfrom .abc import Lost\n",
    "_rooms": f'from ._turn import Lost\nclass Rooms:\n    """Rooms."""\n    {RETIRE}\n',
    "_sqlite": "",
    "executor": "from . import _sqlite\n",
    "_inbox": "",
    "transports.__init__": "",
    "transports.process": "from .._service import trio\n",
    "transports.aio": "import asyncio\nimport trio_asyncio\n",
    "adapters.__init__": "",
    "adapters.codex": "from ..abc import Lost\nfrom ..transports import process\n",
    "adapters.acp.__init__": "from . import profiles\n",
    "adapters.acp.profiles": "class Profile:\n    async def cancel(self) -> None: ...\n",
    "adapters.local": "def f() -> None:\n    import asyncio\n",
}
PLANTED: list[tuple[Rule, str, str]] = [
    (every_module_has_a_floor, "_extra", ""),
    (imports_only_go_down, "_errors", "from . import _rooms"),
    (imports_only_go_down, "_service", "from turnstop._turn import Lost"),
    (imports_only_go_down, "_turn", "def f() -> None:\n    from ._rooms import Rooms"),
    (imports_only_go_down, "_rooms", "import turnstop.adapters.codex"),
    (imports_only_go_down, "_gate", "import turnstop"),
    (imports_only_go_down, "claims", "from . import executor"),
    (imports_only_go_down, "executor", "from . import _inbox"),
    (imports_only_go_down, "_sqlite", "from . import _errors"),
    (imports_only_go_down, "_turn", "from . import _sqlite"),
    (imports_only_go_down, "transports.process", "from .._turn import Lost"),
    (imports_only_go_down, "adapters.codex", "from . import local"),
    (imports_only_go_down, "adapters.codex", "from .acp.profiles import x"),
    (imports_only_go_down, "adapters.acp.profiles", "from ..local import x"),
    (imports_only_go_down, "adapters.codex", "from .._service import open_service"),
    (imports_only_go_down, "adapters.codex", "from turnstop import Rooms"),
    (imports_only_go_down, "lab.endpoint", "from .._rooms import Rooms"),
    (no_circles, "_errors", "from . import abc"),
    (the_core_imports_few_packages, "_errors", "import trio"),
    (the_core_imports_few_packages, "_rooms", "import h11"),
    (asyncio_stays_in_its_place, "adapters.codex", "import asyncio"),
    (asyncio_stays_in_its_place, "_turn", "def f() -> None:\n    import trio_asyncio"),
    (modules_are_short, "_rooms", "#\n" * 401),
    (modules_are_short, "_turn", "#\n" * 301),
    (functions_are_short, "_gate", LONG),
    (adapters_leave_the_stop_to_the_kernel, "adapters.codex", "trio.CancelScope(shield=True)"),
    (adapters_leave_the_stop_to_the_kernel, "adapters.codex", "scope.shield = True"),
    (adapters_leave_the_stop_to_the_kernel, "adapters.acp.profiles", "trio.fail_after(1)"),
    (adapters_leave_the_stop_to_the_kernel, "adapters.codex", "from trio import move_on_at as m"),
    (adapters_leave_the_stop_to_the_kernel, "adapters.codex", "x = trio.StrictFIFOLock()"),
    (the_faces_are_sorted_and_small, "__init__", '__all__ = ["b", "a"]'),
    (the_faces_are_sorted_and_small, "__init__", f"__all__ = {[f'n{n:02}' for n in range(25)]}"),
    (public_names_say_what_they_are, "abc", '__all__ = ["Lost"]\nfrom ._errors import Lost'),
    (public_names_say_what_they_are, "abc", '__all__ = ["x"]\nx = int'),
    (public_coroutines_say_what_a_cancel_leaves, "transports.sse", "async def f() -> None: ..."),
    (public_coroutines_say_what_a_cancel_leaves, "_rooms", "class Rooms:\n async def f(self): ..."),
]


def _plant(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / "turnstop" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_tree(root / "turnstop")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_clean_tree_is_clean(rule: Rule, tmp_path: Path) -> None:
    assert rule(_plant(tmp_path, CLEAN)) == []


@pytest.mark.parametrize(("rule", "name", "text"), PLANTED)
def test_bites(rule: Rule, name: str, text: str, tmp_path: Path) -> None:
    assert rule(_plant(tmp_path, {**CLEAN, name: text})) != []
