"""A program's version: asked for, held against a floor, and never waited for without a bound."""

from __future__ import annotations

import sys

import pytest
import trio

from turnstop import BackendRefused
from turnstop.transports.version import check_version

INSTALL = "pip install agent"


def says(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def check(code: str, floor: str = "2.1.9", within: float = 15.0) -> str:
    return await check_version(
        says(code), floor, name="agent", install=INSTALL, within=within, env={"SAID": "2.1.10"}
    )


@pytest.mark.parametrize("said", ["2.1.9", "agent 2.1.9 (build 7)", "v3.0", "2.1.10", "2.2"])
async def test_one_that_is_new_enough_is_told(said: str) -> None:
    assert (await check(f"print({said!r})")) in said


async def test_numbers_are_compared_as_numbers() -> None:
    with pytest.raises(BackendRefused, match=r"agent is 2\.1\.9, and 2\.1\.10 is the oldest"):
        await check("print('2.1.9')", "2.1.10")
    assert await check("import os; print(os.environ['SAID'])", "2.1.9") == "2.1.10"


@pytest.mark.parametrize(("said", "floor"), [("2.1", "2.1.0"), ("2.1.0", "2.1"), ("0.0", "0.0.0")])
async def test_a_zero_that_is_left_out_is_a_zero(said: str, floor: str) -> None:
    assert await check(f"print({said!r})", floor) == said


@pytest.mark.parametrize("said", ["9" * 5000 + ".1", "1." + "9" * 5000])
async def test_a_number_without_end_is_no_version(said: str) -> None:
    with pytest.raises(BackendRefused, match=r"told no version but '[19]"):
        await check(f"print({said!r})")


async def test_the_remedy_is_in_the_text() -> None:
    with pytest.raises(BackendRefused, match=r"install 2\.1\.9 or newer with: pip install agent"):
        await check("print('1.0')")


async def test_a_missing_one_has_the_line_that_installs_it() -> None:
    with pytest.raises(BackendRefused, match="install it with: pip install agent"):
        await check_version(["/nowhere/agent"], "1.0", name="agent", install=INSTALL)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import sys; sys.exit('broken')", "told no version: .*status 1; its stderr ends: broken"),
        ("import os, time; os.close(1); time.sleep(0.3); os._exit(7)", "no version: .*status 7"),
        ("print('hello')", "told no version but 'hello'"),
        ("while True: print('x' * 1000)", "told no version but 'xxx"),
    ],
)
async def test_one_that_tells_none_is_refused_with_what_it_said(code: str, text: str) -> None:
    with pytest.raises(BackendRefused, match=text):
        await check(code)


async def test_one_that_reads_first_finds_the_end() -> None:
    assert await check("import sys; sys.stdin.read(); print('3.0')") == "3.0"


async def test_one_that_cannot_be_started_is_refused_with_the_remedy() -> None:
    huge = "x" * 2**22
    with pytest.raises(BackendRefused, match=r"could not be started.*; install 1\.0 or newer"):
        await check_version(["true", huge], "1.0", name="agent", install=INSTALL)


async def test_one_that_hangs_is_not_waited_for() -> None:
    began = trio.current_time()
    with pytest.raises(BackendRefused, match=r"told no version: .*is still running"):
        await check("import time; time.sleep(600)", within=0.2)
    assert trio.current_time() - began < 10.0


async def test_what_it_said_before_it_hung_is_not_taken() -> None:
    with pytest.raises(BackendRefused, match="told no version"):
        await check("import time; print('3.0', flush=True); time.sleep(600)", within=1.0)
