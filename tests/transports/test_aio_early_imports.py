"""What was imported before the bridge works on it: in a process of its own each, as imports are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BOUND = 60

hosted = pytest.mark.skipif(
    sys.version_info >= (3, 14) or importlib.util.find_spec("trio_asyncio") is None,
    reason="pip install 'turnstop[aio]', on Python 3.13 or older",
)
ANYIO = """
import anyio._backends._asyncio, anyio.to_thread

async def use():
    with anyio.move_on_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        assert await anyio.to_thread.run_sync(int, "7") == 7
    await anyio.sleep(0)
    return anyio.get_current_task().name and "anyio works"
"""
AIOFILES = """
import aiofiles, aiofiles.os

async def use():
    async with aiofiles.open(__file__) as file:
        assert "aiofiles works" in await file.read()
    assert await aiofiles.os.path.exists(__file__)
    return "aiofiles works"
"""
BY_NAME = """
from asyncio import get_running_loop, current_task, get_event_loop, new_event_loop
import asyncio.events as events

async def use():
    assert get_running_loop() is get_event_loop() is events.get_running_loop()
    assert current_task() is not None
    return "asyncio works"
"""
LIBRARIES = {"anyio": ANYIO, "aiofiles": AIOFILES, "asyncio": BY_NAME}
SOMEBODY_ELSE = "import warnings; warnings.simplefilter('ignore'); import trio_asyncio\n"
MAIN = """
import trio
from turnstop.transports.aio import open_aio

async def main():
    async with open_aio(thread={thread}) as aio:
        print(await aio.call(use))
        print(await aio.call(use))

trio.run(main)
"""


def run(folder: Path, script: str) -> str:
    path = folder / "script.py"
    path.write_text(script)
    paths = os.pathsep.join(filter(None, (os.fspath(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=BOUND,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@hosted
@pytest.mark.parametrize("somebody", ["nobody", "before the library", "after the library"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_was_imported_first_works(tmp_path: Path, name: str, somebody: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"pip install {name}")
    imports = LIBRARIES[name]
    if somebody == "before the library":
        imports = SOMEBODY_ELSE + imports
    elif somebody == "after the library":
        imports += SOMEBODY_ELSE
    assert run(tmp_path, imports + MAIN.format(thread=False)) == f"{name} works\n" * 2


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_loop_in_a_thread_imports_nothing_that_changes_asyncio(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"pip install {name}")
    script = LIBRARIES[name] + MAIN.format(thread=True)
    script += "import sys, asyncio.events; print('trio_asyncio' in sys.modules)\n"
    assert run(tmp_path, script) == f"{name} works\n" * 2 + "False\n"


@hosted
def test_the_import_comes_with_the_loop_and_not_with_the_module(tmp_path: Path) -> None:
    script = "import sys, turnstop.transports.aio; print('trio_asyncio' in sys.modules)\n"
    assert run(tmp_path, script) == "False\n"


@hosted
def test_other_asyncio_programs_of_the_process_go_on_as_they_were(tmp_path: Path) -> None:
    script = """
import asyncio, threading
from asyncio import get_running_loop

async def use():
    return "bridged"

async def plain():
    # In a thread of its own, on the loop that asyncio itself makes.
    assert get_running_loop() is asyncio.get_running_loop()
    assert asyncio.current_task() is not None
    await asyncio.sleep(0)
    said.append("plain")

said = []
def beside():
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(plain())
"""
    script += MAIN.format(thread=False)
    script += "thread = threading.Thread(target=beside); thread.start(); thread.join(); print(said)"
    assert run(tmp_path, script) == "bridged\nbridged\n['plain']\n"


@pytest.mark.parametrize("change", ["too old", "missing"])
async def test_the_version_of_trio_asyncio_is_checked(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    import importlib.metadata

    from turnstop.transports.aio import open_aio

    def version(name: str) -> str:
        assert name == "trio-asyncio"
        if change == "missing":
            raise importlib.metadata.PackageNotFoundError
        return "0.15.0"

    monkeypatch.setattr(sys, "version_info", (3, 13, 0, "final", 0))
    monkeypatch.setattr(importlib.metadata, "version", version)
    told = "0.15.0 is here, and open_aio needs >=0.16" if change == "too old" else "turnstop.aio"
    with pytest.raises(ImportError, match=told):
        async with open_aio():
            pass


async def test_on_python_3_14_the_error_says_what_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstop.transports.aio import open_aio

    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    with pytest.raises(ImportError, match=r"3\.14: take open_aio\(thread=True\), or Python 3\.13"):
        async with open_aio():
            pass
    monkeypatch.undo()
    async with open_aio(thread=True) as aio:

        async def answer() -> int:
            return 42

        assert await aio.call(answer) == 42


LAZY = """
import importlib.util, sys
spec = importlib.util.find_spec("this_is_broken")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = sys.modules["this_is_broken"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

async def use():
    return "nothing was loaded"
"""


@hosted
def test_a_module_that_is_to_be_loaded_later_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "this_is_broken.py").write_text("raise RuntimeError('loaded')")
    said = run(tmp_path, LAZY + MAIN.format(thread=False))
    assert said == "nothing was loaded\n" * 2


def test_what_is_deprecated_in_it_is_not_the_applications_to_hear_of(tmp_path: Path) -> None:
    """Nor does it fail for one that makes errors of warnings."""
    words = "import warnings; warnings.warn('its policy is deprecated', DeprecationWarning)"
    (tmp_path / "trio_asyncio.py").write_text(words)
    script = """
import warnings
from turnstop.transports.aio._early import import_trio_asyncio
warnings.simplefilter("error")
print(import_trio_asyncio().__file__)
"""
    assert run(tmp_path, script) == f"{tmp_path / 'trio_asyncio.py'}\n"


def test_asyncio_may_have_no_part_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstop.transports.aio import _early

    module = ModuleType("trio_asyncio._loop")
    assert _early._kept_by(module).keys() <= {"get_running_loop"}
    monkeypatch.setitem(sys.modules, "_asyncio", None)  # type: ignore[arg-type]
    assert _early._kept_by(module) == {}
