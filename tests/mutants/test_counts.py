"""What is known of the mutants stays true of the code as it is, without running one."""

from __future__ import annotations

import pytest
from groups import MODULES, SHARE, Key, make_mutants, read_counts, read_reasons
from run import report
from slots import Outcome


@pytest.fixture(scope="module")
def made() -> dict[str, set[Key]]:
    return {
        group: {mutant.key for mutant in make_mutants(modules)}
        for group, modules in MODULES.items()
    }


@pytest.mark.parametrize("group", MODULES)
def test_each_listed_survivor_is_a_mutant_and_has_a_reason(
    group: str, made: dict[str, set[Key]]
) -> None:
    listed = read_reasons(group)
    assert [key for key in listed if key not in made[group]] == []
    assert all(reason.endswith(".") for reason in listed.values())


@pytest.mark.parametrize("group", MODULES)
def test_no_fewer_are_caught_than_were(group: str, made: dict[str, set[Key]]) -> None:
    assert len(made[group]) - len(read_reasons(group)) >= read_counts()[group].caught


def test_nearly_all_are_caught(made: dict[str, set[Key]]) -> None:
    total = sum(map(len, made.values()))
    assert total - sum(len(read_reasons(group)) for group in MODULES) >= SHARE * total


def outcomes_of(group: str, caught: int) -> list[Outcome]:
    """As if so many of a group had been caught, and the others had a reason to survive."""
    mutants = make_mutants(MODULES[group])
    listed = read_reasons(group)
    mutants.sort(key=lambda mutant: mutant.key in listed)
    return [
        Outcome(mutant, "a test" if place < caught else None, 0.0)
        for place, mutant in enumerate(mutants)
    ]


@pytest.mark.parametrize("group", MODULES)
def test_a_whole_run_fails_where_fewer_are_caught_than_were(group: str) -> None:
    recorded = read_counts()[group].caught
    found = report(outcomes_of(group, recorded), MODULES[group], whole=True)
    assert "problems" not in found
    missed = report(outcomes_of(group, recorded - 1), MODULES[group], whole=True)
    assert f"{group}: {recorded - 1} caught, where {recorded} were" in missed["problems"]
    part = report(outcomes_of(group, recorded - 1)[:9], MODULES[group], whole=False)
    assert "problems" not in part
