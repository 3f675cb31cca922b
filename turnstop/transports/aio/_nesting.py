"""Whether a nursery goes around whoever asks."""

from __future__ import annotations

import trio

__all__ = ["descends", "encloses"]


def encloses(nursery: trio.Nursery, task: trio.lowlevel.Task) -> bool:
    """Whether everything that this task opens from here on is over before the nursery is."""
    if nursery in task.child_nurseries:
        return True
    # Where `Nursery.start` will put it, if that is where it is being started.
    while (above := task.eventual_parent_nursery or task.parent_nursery) is not None:
        if above is nursery:
            return True
        task = above.parent_task
        # A nursery goes around those which the same task has opened after it.
        opened = list(task.child_nurseries)
        if nursery in opened and above in opened:
            return opened.index(nursery) < opened.index(above)
    return False


def descends(task: trio.lowlevel.Task, other: trio.lowlevel.Task) -> bool:
    """Whether a task is the other one, or runs in a nursery below it."""
    while task is not other:
        if task.parent_nursery is None:
            return False
        task = task.parent_nursery.parent_task
    return True
