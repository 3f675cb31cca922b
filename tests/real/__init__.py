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
    from turnstop.lab.letta import find_letta
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
    """The Letta server, which is no program of a pin: skip what needs it where it is absent.

    Raises:
        MissingProgram: it is absent, and everything large was asked for as well.
    """
    try:
        find_letta()
    except MissingProgram as missing:
        if REQUIRED and os.environ.get("TURNSTOP_LAB") == "all":
            raise
        pytest.skip(str(missing), allow_module_level=True)
