"""Tests of the real programs, and the one rule of what happens where such a program is missing.

    PROGRAM = real_program("codex")     # below the imports: without it the module is skipped

With TURNSTOP_REAL=require a missing program is an error instead: every one but those that their
pins call optional, and with TURNSTOP_LAB=all those as well.
"""

from __future__ import annotations

import os

import pytest

REQUIRED = os.environ.get("TURNSTOP_REAL") == "require"

try:
    from turnstop.lab import PINS, MissingProgram, Program, find_program
    from turnstop.lab.letta import LETTA_INSTALL, find_letta
except ImportError as absent:
    if REQUIRED:
        raise
    # A module of this package is not imported without it, and is skipped in its place.
    pytest.skip(str(absent), allow_module_level=True)


def is_required(name: str) -> bool:
    """Whether a run without this program is a failed one."""
    return REQUIRED and (not PINS[name].optional or os.environ.get("TURNSTOP_LAB") == "all")


def real_program(name: str) -> Program:
    """The program; where it is absent and may be, the test or the module is skipped.

    Raises:
        MissingProgram: it is absent and may not be.
    """
    try:
        return find_program(name)
    except MissingProgram as missing:
        if is_required(name):
            raise
        pytest.skip(str(missing), allow_module_level=True)


def real_letta() -> None:
    """Skip what needs the Letta server, unless it is asked for: it is large, and takes minutes.

    Raises:
        MissingProgram: it was asked for, and is absent.
    """
    if not os.environ.get("TURNSTOP_LETTA"):
        text = f"set TURNSTOP_LETTA=1 for the Letta server, and install it: {LETTA_INSTALL}"
        pytest.skip(text, allow_module_level=True)
    find_letta()
