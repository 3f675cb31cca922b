"""What a module's source says, found on the import path without running it or its packages."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["find_spec", "has_attribute", "pin_in", "stoppable_in"]


def find_spec(module: str) -> ModuleSpec | None:
    """Where a module is. `importlib.util.find_spec` would import its packages."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # a module that was made by hand
        return None
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        first = f"{first}.{part}"
        spec = PathFinder.find_spec(first, list(spec.submodule_search_locations))
    return spec


def _read_all(target: str) -> dict[str, ast.Module]:
    """The module of `module` or `module:attribute`, and all that is below it; by file."""
    spec = find_spec(target.partition(":")[0])
    if spec is None:
        return {}
    files = [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    for folder in spec.submodule_search_locations or []:
        files += sorted(Path(folder).rglob("*.py"))
    return {str(file): ast.parse(file.read_bytes()) for file in dict.fromkeys(files)}


def has_attribute(target: str) -> bool:
    """Whether the module of `module:attribute` is there and has a top-level name like it."""
    module, _, attribute = target.partition(":")
    tree = _read_own(module)
    if tree is None:
        return False
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = _targets(node)
        else:
            names = [getattr(node, "name", "")]
        if attribute.partition(".")[0] in names:
            return True
    return False


def _read_own(module: str) -> ast.Module | None:
    spec = find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return ast.parse(Path(spec.origin).read_bytes())


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(one) for one in found]


def stoppable_in(target: str) -> Iterator[str]:
    """What there is to stop: classes of remote turns, and functions that open a backend."""
    for file, tree in _read_all(target).items():
        where = Path(file).name
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and {"follow", "cancel"} <= _methods(node):
                yield f"the remote turn {node.name} ({where}:{node.lineno})"
        for name, line in _names(tree):
            if name.startswith("open_"):
                yield f"{name} ({where}:{line})"


def _methods(node: ast.ClassDef) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {one.name for one in node.body if isinstance(one, functions)}


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The functions that it defines, or takes over from elsewhere to give them away."""
    shown = _shown(tree)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            names = (alias.asname or alias.name for alias in node.names)
            yield from ((name, node.lineno) for name in names if name in shown)


def _shown(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return set()


def pin_in(target: str, kind: str) -> str | None:
    """The reason of `name = NoRemoteWork("reason")` for `module:name`; None: it is no pin."""
    module, _, attribute = target.partition(":")
    tree = _read_own(module)
    for node in tree.body if tree else ():
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or attribute not in _targets(node):
            continue
        value = node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(kind):
            words = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
            return str(words[0]) if words else ""
    return None
