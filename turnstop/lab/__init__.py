"""A model endpoint on loopback for real agents, and where to find the real programs.

    async with open_lab() as lab:
        env = program_env("codex", lab.url, home)   # an agent that asks this lab
        ...                                     # give it the prompt "[turn:abc123] park"
        await lab.parked("abc123")
        ...                                     # stop the turn
        await lab.gone("abc123")

The prompt itself says what the model does (`turnstop.lab.behaviours`), so that any program, in any
process, can be driven by nothing but text. Needs the extra `lab`.
"""

from ._endpoint import open_lab
from ._ledger import Connection, Exchange, Fault, Lab
from ._processes import ToolProcess
from .behaviours import Behaviour, read_prompt, write_prompt
from .environments import copilot_session, program_env
from .pins import PINS, Pin
from .programs import MissingProgram, Program, find_program

__all__ = [
    "PINS",
    "Behaviour",
    "Connection",
    "Exchange",
    "Fault",
    "Lab",
    "MissingProgram",
    "Pin",
    "Program",
    "ToolProcess",
    "copilot_session",
    "find_program",
    "open_lab",
    "program_env",
    "read_prompt",
    "write_prompt",
]
