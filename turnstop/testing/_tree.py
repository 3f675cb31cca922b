"""Where the tasks of this run wait, told in few lines."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from types import FrameType

from trio.lowlevel import Task, current_root_task

MOST = 40


def _walk(task: Task, depth: int = 0) -> Iterator[tuple[int, Task]]:
    yield depth, task
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda child: child.name):
            yield from _walk(child, depth + 1)


def all_tasks() -> list[Task]:
    """Every task of this run, Trio's own included."""
    root = current_root_task()
    return [] if root is None else [task for _, task in _walk(root)]


def describe() -> str:
    """One line a task, indented below its parent: its name, and where it waits."""
    root = current_root_task()
    found = [] if root is None else list(_walk(root))
    # Trio's own two are of interest only where a generator's finaliser runs in the first of them.
    users = [(depth, task) for depth, task in found[1:] if not task.name.startswith("<TrioToken.")]
    lines = [
        f"{'  ' * depth}{task.name}: {place(task.iter_await_frames())}"
        for depth, task in (users or found[:1])
    ]
    if len(lines) > MOST:
        lines[MOST:] = [f"  and {len(lines) - MOST} tasks more"]
    return "\n".join(lines)


def place(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The innermost of the frames that is not Trio's own; they come from the outermost on."""
    found = list(frames)
    if not found:
        return "has ended"
    frame, line = next((pair for pair in reversed(found) if not _is_trio(pair[0])), found[0])
    code = frame.f_code
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{code.co_filename}:{line} in {code.co_name}: {text}"


def _is_trio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "trio"
