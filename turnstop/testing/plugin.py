"""Obligations as tests of pytest: one an obligation and probe.

    @pytest.mark.turnstop_probe([MyProbe])
    def test_keeps_its_promises(obligation):
        obligation()

A probe is what `check_backend` takes, or the name of an adapter whose probes the inventory has.
They are in a list, since pytest takes a lone class for what is to be marked. What the backend
cannot do, and what takes a lever that the probe does not have, is skipped with the reason; so is
a probe that needs what is not installed.

pytest loads this by itself where turnstop is installed, and with it `turnstop.testing`, but none of
the extras. In a tree that is only on the path, say `-p turnstop.testing.plugin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from ._factory import name_of
from ._loading import Missing
from ._obligation import OBLIGATIONS, Obligation
from ._probe import Probe
from ._report import Outcome, Row
from ._run import check_claims, check_obligation
from .inventory import load_probes

__all__ = ["Check"]

MakeProbe = Callable[[], Probe]
MARKER = "turnstop_probe"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    text = f"{MARKER}(*probes): check each obligation of turnstop.testing against these probes"
    config.addinivalue_line("markers", text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each obligation and probe, or one that is skipped where it is missing."""
    marks = list(metafunc.definition.iter_markers(MARKER))
    if not marks:
        return
    probes = [probe for mark in marks for probe in _flat(mark.args)]
    if "obligation" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.name} takes no obligation: nothing is checked"
        )
    if not probes or any(mark.kwargs for mark in marks):
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes [probe, ...], and nothing else")
    parameters = [parameter for probe in probes for parameter in _parameters(probe, probes)]
    metafunc.parametrize("obligation", parameters, indirect=True)


@pytest.fixture
def obligation(request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """One obligation of one probe: call it to check it."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(f"obligation takes @pytest.mark.{MARKER}([probe, ...])")
    check: Check = request.param
    called: list[bool] = []

    def checked() -> Row:
        __tracebackhide__ = True
        called.append(True)
        return check()

    yield checked
    if not called:
        pytest.fail("nothing was checked: call obligation()")


def _flat(probes: Sequence[Any]) -> Iterator[MakeProbe | str]:
    # A lone class in a mark is what is to be marked, to pytest, so that probes come in a list.
    for probe in probes:
        yield from probe if isinstance(probe, (list, tuple)) else (probe,)


@attrs.frozen
class Check:
    """One obligation of one probe, as a test is given it: call it."""

    one: Obligation
    make_probe: MakeProbe = attrs.field(repr=False)

    def __call__(self) -> Row:
        """Check it.

        Raises:
            AssertionError: the promise is not kept; the text says what was seen.
            ValueError: the probe contradicts itself.
        """
        __tracebackhide__ = True
        check_claims(self.make_probe())
        row = check_obligation(self.one, self.make_probe)
        if row.outcome is Outcome.RED:
            raise AssertionError(str(row))
        if row.outcome is not Outcome.GREEN:
            pytest.skip(f"{row.outcome.value}: {row.text}")
        return row


def _parameters(probe: MakeProbe | str, probes: Sequence[object]) -> Iterator[Any]:
    if isinstance(probe, str):
        try:
            found = load_probes(probe)
        except Missing as missing:
            # Nothing of it is known but its name; the others are collected all the same.
            yield pytest.param(None, id=probe, marks=pytest.mark.skip(reason=str(missing)))
            return
    else:
        found = [probe]
    for make_probe in found:
        name = _name(make_probe)
        if sum(_name(one) == name for one in probes if callable(one)) > 1:
            name += f"({name_of(make_probe)})"
        for one in OBLIGATIONS.values():
            yield pytest.param(Check(one, make_probe), id=f"{name}-{one.name}")


def _name(make_probe: MakeProbe) -> str:
    """Without making one: that may take what is not there yet."""
    if isinstance(make_probe, partial):
        return name_of(make_probe.args[0]) if make_probe.args else _name(make_probe.func)
    return getattr(make_probe, "name", "") or name_of(make_probe)
