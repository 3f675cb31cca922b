"""Every adapter of our own keeps its promises, or says with a reason why it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnstop.testing.inventory import OWN


@pytest.mark.turnstop_probe(*OWN)
def test_keeps_its_promise(obligation: Callable[[], object]) -> None:
    obligation()
