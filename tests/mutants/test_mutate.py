"""The mutants are those that were meant, each of them compiles, and each differs."""

from __future__ import annotations

import ast

import pytest
from mutate import mutants_of

HEAD = "async def f(self, x):\n    "


def changes(body: str) -> list[str]:
    mutants = mutants_of("m", HEAD + body.replace("\n", "\n    "))
    for mutant in mutants:
        compile(mutant.source, "m", "exec")
    assert len({mutant.source for mutant in mutants}) == len(mutants)
    return [mutant.change for mutant in mutants]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('"""Doc."""', []),
        ("x = 1\nreturn x", []),
        ("self.scope.cancel()", ["drop: self.scope.cancel()"]),
        ("await x", ["drop: await x"]),
        ("self.x = 1", ["drop: self.x = 1"]),
        ("self.x, y = 1, 2", ["drop: self.x, y = (1, 2)"]),
        ("del self.x[1]", ["drop: del self.x[1]"]),
        ("if x:\n    return", ["drop: if x: return"]),
        ("if x:\n    x()", ["always: if x: x()", "drop: x()"]),
        ("x = g()\nx.set()", ["drop: x.set()"]),
        (
            "self.x = 1\nself.set()",
            ["drop: self.x = 1", "swap: self.x = 1 <> self.set()", "drop: self.set()"],
        ),
        ("x()\ny = 1\nx()", ["drop: x()", "swap: y = 1 <> x()", "drop: x() #2"]),
        ("x()\nx()", ["drop: x()"]),
        ("try:\n    x()\nfinally:\n    y()", ["no finally: y()", "drop: x()", "drop: y()"]),
        ("with C(shield=True):\n    pass", ["no shield: C(shield=True)"]),
        ("with C(deadline=x, y=2):\n    pass", ["no deadline: C(deadline=x, y=2)"]),
    ],
)
def test_what_is_changed(body: str, expected: list[str]) -> None:
    assert changes(body) == expected


def test_protection_is_removed() -> None:
    (mutant,) = mutants_of("m", "class C:\n    @enable_ki_protection\n    def f(self): return 1\n")
    assert (mutant.function, mutant.change) == ("C.f", "drop: @enable_ki_protection")
    assert "protection" not in mutant.source


def test_a_nested_function_is_its_own() -> None:
    found = mutants_of("m", "def f():\n    def g():\n        x()\n    return g\n")
    assert [(mutant.function, mutant.line) for mutant in found] == [("f.g", 3)]


def test_the_rest_of_the_module_stays() -> None:
    source = "def f():\n    x()\n\ndef g():\n    y()\n"
    for mutant in mutants_of("m", source):
        assert len(ast.parse(mutant.source).body) == 2
