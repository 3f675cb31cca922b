"""The tools that a request offers, how its shell is called, and what a schema admits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

# The parameter that takes the command, by its names in the programs' shells.
_COMMANDS = ("command", "cmd")
_SHELL = re.compile(r"exec_command|bash|shell|terminal|run_", re.IGNORECASE)
# Some shells hand a command over to the background after a while: not within a test.
_PATIENCE = {"yield_time_ms": 30_000, "initial_wait": 600}
_LONG_MS = 600_000
_PLAIN: dict[str, Any] = {"boolean": False, "array": [], "null": None}


def _schema(given: object) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


@attrs.frozen
class Tool:
    """A tool that the model may call.

    Attributes:
        name: what it is called by.
        schema: the JSON schema of its arguments.
    """

    name: str
    schema: Mapping[str, Any] = attrs.field(converter=_schema, repr=False)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its arguments' schemas, by name."""
        return _schema(self.schema.get("properties"))


def shell_call(tools: Iterable[Tool], command: str) -> tuple[str, dict[str, Any]]:
    """The call that runs the command: the shell's name, and the arguments its schema requires.

    Where no tool looks like a shell, it is codex's `exec_command`.
    """
    shells = [tool for tool in tools if _command_of(tool)]
    named = [tool for tool in shells if _SHELL.search(tool.name)]
    shell = next(iter(named or shells), None)
    if shell is None:
        return "exec_command", {"cmd": command}
    parameters, key = shell.parameters, _command_of(shell)
    patience = {name: value for name, value in _PATIENCE.items() if name in parameters}
    words = parameters[key].get("type") == "array"
    said = {key: ["bash", "-c", command] if words else command}
    return shell.name, {**example(shell.schema), **patience, **said}


def example(schema: Mapping[str, Any], name: str = "") -> Any:
    """Something that the JSON schema, or Gemini's kind of it, admits: no more than it requires."""
    if choices := schema.get("enum"):
        return choices[0]
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kinds[0] if isinstance(kinds, list) else kinds).lower()
    if kind == "object":
        parts = schema.get("properties") or {}
        return {part: example(parts.get(part) or {}, part) for part in schema.get("required", ())}
    if kind in ("integer", "number"):
        return schema.get("minimum", _LONG_MS if "timeout" in name else 1)
    return _PLAIN.get(kind, "a word of the lab's")


def _command_of(tool: Tool) -> str:
    return next((name for name in _COMMANDS if isinstance(tool.parameters.get(name), dict)), "")
