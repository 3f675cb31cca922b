"""Mutants of a module, made mechanically: each is the module with one promise of order removed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import attrs

SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)
JUMP = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
PROTECTION = {"enable_ki_protection", "disable_ki_protection"}


@attrs.frozen
class Mutant:
    """One change. `function` and `change` name it, whatever line it is on."""

    module: str
    function: str
    change: str
    line: int
    source: str = attrs.field(repr=False, eq=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.function, self.change


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    found: list[Mutant] = []
    seen: Counter[tuple[str, str]] = Counter()
    texts: set[str] = set()
    for function, change, line, text in _changes(ast.parse(source)):
        if text in texts:
            continue
        texts.add(text)
        seen[function, change] += 1
        count = seen[function, change]
        name = change if count == 1 else f"{change} #{count}"
        found.append(Mutant(module, function, name, line, text))
    return found


Change = tuple[str, str, int, str]


def _changes(tree: ast.Module) -> Iterator[Change]:
    for function, node in _functions(tree):
        for inner in _walk(node):
            for change, line, edit in (*_block_edits(inner), *_node_edits(inner)):
                # The edit happens in place, is written out, and is undone.
                undo = edit()
                text = ast.unparse(tree)
                undo()
                yield function, change, line, text


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTION):
            yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def _walk(function: ast.AST) -> Iterator[ast.AST]:
    """The function and what is in it, but not the functions and classes in it."""
    yield function
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (*FUNCTION, ast.ClassDef)):
            yield from _walk(node)


class Undo:
    """Put a list or an attribute back as it was."""

    def __init__(self, owner: ast.AST, name: str) -> None:
        value = getattr(owner, name)
        self.owner, self.name = owner, name
        self.value = list(value) if isinstance(value, list) else value

    def __call__(self) -> None:
        setattr(self.owner, self.name, self.value)


class Replace:
    """Set an attribute of a node; how to undo it is what it returns."""

    def __init__(self, owner: ast.AST, name: str, value: object) -> None:
        self.owner, self.name, self.value = owner, name, value

    def __call__(self) -> Undo:
        undo = Undo(self.owner, self.name)
        setattr(self.owner, self.name, self.value)
        return undo


Edit = tuple[str, int, Replace]


def _block_edits(node: ast.AST) -> Iterator[Edit]:
    """Statements dropped, put in another order, or done in any case."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for index, statement in enumerate(block):
            for what, instead in _replacements(statement):
                changed = [*block[:index], *instead, *block[index + 1 :]]
                yield what, statement.lineno, Replace(node, name, changed or [ast.Pass()])
            after = block[index + 1] if index + 1 < len(block) else None
            if after is not None and _may_swap(statement, after):
                changed = [*block[:index], after, statement, *block[index + 2 :]]
                what = f"swap: {_short(statement)} <> {_short(after)}"
                yield what, statement.lineno, Replace(node, name, changed)


def _replacements(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    if _is_drop(node):
        yield f"drop: {_short(node)}", []
    if isinstance(node, ast.If) and not node.orelse:
        jumps = isinstance(node.body[-1], JUMP)
        if len(node.body) > 1 or not _is_drop(node.body[0]):
            yield f"drop: {_short(node)}", []
        if not jumps:
            yield f"always: {_short(node)}", node.body
    if isinstance(node, ast.Try) and node.finalbody and not node.handlers:
        yield f"no finally: {_short(node.finalbody[0])}", [*node.body, *node.finalbody]


def _is_drop(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return node.value is not None and any(map(_is_lasting, targets))
    return isinstance(node, ast.Delete) and any(map(_is_lasting, node.targets))


def _is_lasting(target: ast.expr) -> bool:
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in parts)


def _may_swap(one: ast.stmt, two: ast.stmt) -> bool:
    """The second is a call, another one, and does not need a name that the first binds."""
    if ast.dump(one) == ast.dump(two) or not (
        isinstance(two, ast.Expr) and isinstance(two.value, (ast.Call, ast.Await))
    ):
        return False
    if isinstance(one, ast.If):
        return not any(isinstance(node, JUMP) for node in ast.walk(one))
    if not isinstance(one, SIMPLE) or isinstance(getattr(one, "value", None), ast.Constant):
        return isinstance(one, (ast.Assign, ast.AnnAssign)) and not _binds(one) & _names(two)
    return not _binds(one) & _names(two)


def _binds(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _node_edits(node: ast.AST) -> Iterator[Edit]:
    """Shields lowered, deadlines forgotten, protection from KeyboardInterrupt removed."""
    if isinstance(node, ast.Call):
        call = _short(node)
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg == "shield" and isinstance(value, ast.Constant) and value.value is True:
                yield (
                    f"no shield: {call}",
                    node.lineno,
                    Replace(keyword, "value", ast.Constant(False)),
                )
            if keyword.arg == "deadline":
                left = [other for other in node.keywords if other is not keyword]
                yield f"no deadline: {call}", node.lineno, Replace(node, "keywords", left)
    if isinstance(node, FUNCTION):
        for decorator in node.decorator_list:
            if ast.unparse(decorator).rpartition(".")[2] in PROTECTION:
                rest = [other for other in node.decorator_list if other is not decorator]
                what = f"drop: @{ast.unparse(decorator)}"
                yield what, node.lineno, Replace(node, "decorator_list", rest)


def _short(node: ast.AST) -> str:
    first, _, rest = ast.unparse(node).partition("\n")
    body = rest.strip().partition("\n")[0]
    return f"{first} {body}".strip()[:120]
