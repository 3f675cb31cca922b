"""The tools that a request offers, and how its shell is called."""

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
_EMPTY: dict[str, Any] = {"boolean": False, "array": [], "object": {}, "null": None}


@attrs.frozen
class Tool:
    """A tool that the model may call.

    Attributes:
        name: what it is called by.
        schema: the JSON schema of its arguments.
    """

    name: str
    schema: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its arguments' schemas, by name."""
        given = self.schema.get("properties")
        return given if isinstance(given, dict) else {}


def shell_call(tools: Iterable[Tool], command: str) -> tuple[str, dict[str, Any]]:
    """The call that runs the command: the shell's name, and the arguments its schema requires.

    Where no tool looks like a shell, it is codex's `exec_command`.
    """
    shells = [tool for tool in tools if _command_of(tool)]
    named = [tool for tool in shells if _SHELL.search(tool.name)]
    shell = next(iter(named or shells), None)
    if shell is None:
        return "exec_command", {"cmd": command}
    arguments = {name: _anything(schema, name) for name, schema in _required(shell)}
    parameters = shell.parameters
    arguments |= {name: value for name, value in _PATIENCE.items() if name in parameters}
    key = _command_of(shell)
    words = parameters[key].get("type") == "array"
    return shell.name, {**arguments, key: ["bash", "-c", command] if words else command}


def _command_of(tool: Tool) -> str:
    return next((name for name in _COMMANDS if isinstance(tool.parameters.get(name), dict)), "")


def _required(tool: Tool) -> Iterable[tuple[str, Mapping[str, Any]]]:
    names = tool.schema.get("required")
    for name in names if isinstance(names, list) else []:
        schema = tool.parameters.get(name)
        yield name, schema if isinstance(schema, dict) else {}


def _anything(schema: Mapping[str, Any], name: str) -> Any:
    """A value that a parameter takes, where its name does not matter."""
    if choices := schema.get("enum"):
        return choices[0]
    kind = str(schema.get("type", "string")).lower()
    if kind in ("integer", "number"):
        return schema.get("minimum", 600_000 if "timeout" in name else 1)
    return _EMPTY.get(kind, "a command of the lab")
