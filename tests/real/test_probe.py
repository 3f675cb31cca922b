"""`turnstop probe --real`: the promises that matter most, kept by the real programs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from turnstop.cli.main import main
from turnstop.lab import PINS
from turnstop.testing.inventory import OWN, Probed

from . import REQUIRED, is_required

# Each in an environment of its own, where its own tests have it.
APART = ("letta", "parlant")
REAL = {name: shown for name, shown in OWN.items() if isinstance(shown, Probed) and shown.real}


@pytest.mark.parametrize("name", REAL)
def test_a_stop_of_the_real_program_ends_its_work(name: str) -> None:
    only = ("--only", "stop_ends_the_work", "--only", "room_goes_on_after_a_stop")
    result = CliRunner().invoke(main, ["probe", name, "--real", *only])
    missing = result.exit_code == 2 and "install" in result.stderr
    required = is_required(name) if name in PINS else REQUIRED and name not in APART
    if missing and not required:
        pytest.skip(result.stderr)
    assert result.exit_code == 0, result.output
    assert "2 green" in result.stdout
