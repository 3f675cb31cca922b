"""Serve a function of this program to remote callers, as tasks whose cancel is true.

    async def agent(job):
        page = await job.step(fetch, job.content)
        return summarise(page)

    async with open_executor(agent) as executor:
        task = executor.submit("kitchen", "fix the tests")
        ...
        task.cancel()
        outcome = await task.wait()

Each task is a turn. Of what becomes of it there are two facts, which are kept apart. It is
*decided*, once: by the function's return, by its error, or by a cancel, whichever is first. It is
*told*, once, when the work has ended and the claim that it held is released: CANCELED is never said
of work that goes on.
"""

from ._executor import Executor as Executor
from ._executor import ExecutorStatistics as ExecutorStatistics
from ._executor import open_executor as open_executor
from ._job import Job as Job
from ._job import Stopped as Stopped
from ._job import ThreadJob as ThreadJob
from ._run import Claiming as Claiming
from ._run import Holding as Holding
from ._task import Began as Began
from ._task import InputRequired as InputRequired
from ._task import Outcome as Outcome
from ._task import Task as Task
from ._task import TaskState as TaskState

__all__ = [
    "Began",
    "Claiming",
    "Executor",
    "ExecutorStatistics",
    "Holding",
    "InputRequired",
    "Job",
    "Outcome",
    "Stopped",
    "Task",
    "TaskState",
    "ThreadJob",
    "open_executor",
]
