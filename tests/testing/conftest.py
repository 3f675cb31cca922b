"""The plugin, also where turnstop is not installed and pytest has not found it by itself."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("turnstop.testing.plugin")
