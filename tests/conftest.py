"""Every run of the tests marks what it starts, and answers for it."""

from __future__ import annotations

from runs import pytest_sessionfinish, pytest_sessionstart, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_sessionstart", "pytest_terminal_summary"]
