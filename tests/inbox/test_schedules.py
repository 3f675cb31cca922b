"""A sample of what `schedules.py` plays thousands of."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .schedules import Schedules


def test_no_control_and_no_message_is_lost() -> None:
    sample = settings(
        max_examples=30,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    run_state_machine_as_test(Schedules, settings=sample)
