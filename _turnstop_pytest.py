"""What pytest loads in every run: next to nothing, until a test asks for `obligation`.

A package of turnstop would import all of it; `turnstop.testing.plugin` has what this stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_MARKER = "turnstop_probe"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    text = (
        f"{_MARKER}([probe, ...]): check each obligation of turnstop.testing against these probes"
    )
    config.addinivalue_line("markers", text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each obligation and probe."""
    marks = list(metafunc.definition.iter_markers(_MARKER))
    if "obligation" in metafunc.fixturenames and marks:
        from turnstop.testing.plugin import parametrise

        parametrise(metafunc, [argument for mark in marks for argument in mark.args])


@pytest.fixture
def obligation(request: pytest.FixtureRequest) -> Callable[[], object]:
    """One obligation of one probe: call it to check it."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(f"obligation takes @pytest.mark.{_MARKER}([probe, ...])")
    check: Callable[[], object] = request.param
    return check
