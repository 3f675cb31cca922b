from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest
from kernel.conftest import run_in_virtual_time, watchdog

__all__ = ["watchdog"]


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        ours = item.path.is_relative_to(Path(__file__).parent)
        if ours and inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)
