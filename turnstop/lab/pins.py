"""The real programs that turnstop is measured against: which, from where, and how each is begun.

This table is all that knows them. What finds, installs, lists, tests or documents them reads it.
A pin is exact: between two minors these programs change what a stop does.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Literal

import attrs

__all__ = ["HOME_VARIABLE", "NODE_FLOOR", "PINS", "Pin", "lab_home", "platform_name"]

HOME_VARIABLE = "TURNSTOP_LAB_HOME"
NODE_FLOOR = 20
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_ARM = {"arm64": "aarch64"}


@attrs.frozen
class Pin:
    """A program in the one version that is measured.

    Attributes:
        packages: what is installed, each in an exact version.
        command: how it is begun, without the arguments of any mode; a path is below its folder.
            The first word `node` is Node.js, which has to be there.
        acp: what makes it speak the Agent Client Protocol; None where nothing does.
        asked_by: how it tells its version: `--version`, or its answer to ACP's `initialize`.
        download: what is fetched, in MB, on Linux x64.
        size: what is then on disk, and what it unpacks there when it is first begun, in MB.
        optional: it is large: a run of the tests goes on without it unless it is asked for.
        lean: optional dependencies are left out; those that it needs are among `packages`.
    """

    name: str
    version: str
    registry: Literal["npm", "PyPI"]
    packages: tuple[str, ...]
    command: tuple[str, ...]
    download: int
    size: int
    acp: tuple[str, ...] | None = None
    asked_by: Literal["--version", "initialize"] = "--version"
    optional: bool = False
    lean: bool = False

    @property
    def folder(self) -> str:
        """The name of its folder below the lab's."""
        return f"{self.name}-{self.version}"

    @property
    def needs_node(self) -> bool:
        """Whether it runs on Node.js; npm itself does in any case."""
        return self.command[0] == "node"

    @property
    def path(self) -> str:
        """The file that is run, below its folder, on this system."""
        return _here(self.command[-1])

    @property
    def paths(self) -> tuple[str, ...]:
        """All that the command needs of its folder, on this system."""
        return tuple(_here(word) for word in self.command if word != "node")

    @property
    def requirements(self) -> tuple[str, ...]:
        """`packages`, on this system."""
        return tuple(_here(package) for package in self.packages)


def platform_name() -> str:
    """This system as npm's packages are named: `linux-x64`, `darwin-arm64`."""
    machine = platform.machine().lower()
    return f"{sys.platform}-{_MACHINES.get(machine, machine)}"


def lab_home() -> Path:
    """Where programs are installed: one folder each, named after the program and its version."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "turnstop", "lab").absolute()


def _here(text: str) -> str:
    system, _, machine = platform_name().partition("-")
    return text.format(platform=f"{system}-{machine}", bun=f"{system}-{_ARM.get(machine, machine)}")


_ALL = (
    Pin(
        name="claude",
        version="2.1.332",
        registry="PyPI",
        packages=("claude-agent-sdk==0.2.189",),
        command=("claude_agent_sdk/_bundled/claude",),
        download=170,
        size=385,
    ),
    Pin(
        name="codex",
        version="0.163.0",
        registry="PyPI",
        packages=("openai-codex-cli-bin==0.163.0",),
        command=("codex_cli_bin/bin/codex",),
        download=136,
        size=360,
    ),
    Pin(
        name="opencode",
        version="1.18.33",
        registry="npm",
        packages=("opencode-{platform}@1.18.33",),
        command=("node_modules/opencode-{platform}/bin/opencode",),
        acp=("acp",),
        download=58,
        size=177,
        optional=True,
    ),
    Pin(
        name="copilot",
        version="1.0.102",
        registry="npm",
        packages=("@github/copilot-{platform}@1.0.102",),
        command=("node_modules/@github/copilot-{platform}/copilot",),
        acp=("--acp", "--no-auto-update"),
        download=124,
        size=424,
    ),
    Pin(
        name="codex-acp",
        version="2.6.0",
        registry="npm",
        packages=("@agentclientprotocol/codex-acp@2.6.0", "@openai/codex@0.166.0"),
        command=("node", "node_modules/@agentclientprotocol/codex-acp/dist/index.js"),
        acp=(),
        download=172,
        size=457,
    ),
    Pin(
        name="zed-codex-acp",
        version="0.16.0",
        registry="npm",
        packages=("@zed-industries/codex-acp-{platform}@0.16.0",),
        command=("node_modules/@zed-industries/codex-acp-{platform}/bin/codex-acp",),
        acp=(),
        asked_by="initialize",
        download=72,
        size=223,
    ),
    Pin(
        name="claude-agent-acp",
        version="0.49.0",
        registry="npm",
        packages=("@agentclientprotocol/claude-agent-acp@0.49.0",),
        command=("node", "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"),
        acp=(),
        asked_by="initialize",
        download=100,
        size=292,
    ),
    Pin(
        name="zed-claude-agent-acp",
        version="0.23.1",
        registry="npm",
        packages=("@zed-industries/claude-agent-acp@0.23.1",),
        command=("node", "node_modules/@zed-industries/claude-agent-acp/dist/index.js"),
        acp=(),
        asked_by="initialize",
        download=34,
        size=85,
    ),
    Pin(
        name="gemini",
        version="0.61.0",
        registry="npm",
        packages=("@google/gemini-cli@0.61.0",),
        command=("node", "node_modules/@google/gemini-cli/bundle/gemini.js"),
        acp=("--experimental-acp", "-m", "gemini-2.5-flash"),
        download=22,
        size=100,
    ),
    Pin(
        name="qwen",
        version="0.15.10",
        registry="npm",
        packages=("@qwen-code/qwen-code@0.15.10",),
        command=("node", "node_modules/@qwen-code/qwen-code/cli.js"),
        acp=("--acp",),
        download=17,
        size=55,
    ),
    Pin(
        name="omp",
        version="18.2.3",
        registry="npm",
        packages=(
            "@oh-my-pi/pi-coding-agent@18.2.3",
            "@oh-my-pi/pi-natives-{platform}@18.2.3",
            "@oven/bun-{bun}@1.4.5",
        ),
        command=(
            "node_modules/@oven/bun-{bun}/bin/bun",
            "node_modules/@oh-my-pi/pi-coding-agent/dist/cli.js",
        ),
        acp=("acp",),
        download=207,
        size=707,
        optional=True,
        lean=True,
    ),
)
PINS: dict[str, Pin] = {pin.name: pin for pin in _ALL}
