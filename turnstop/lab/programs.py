"""Where the real programs are, which version they have, and how to point them at a lab."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import attrs
import trio

_CODEX_CONFIG = """\
model = "fake-model"
model_provider = "lab"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.lab]
name = "Lab"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[features]
plugins = false
apps = false
"""
_ANSWERS_WITHIN = 30.0


class MissingProgram(Exception):
    """A program is not installed; the text is one line and ends in the command that installs it."""


@attrs.frozen
class Program:
    """A program that is installed."""

    name: str
    path: str

    async def version(self) -> str:
        """What it says of its version.

        Raises:
            MissingProgram: the file is there and does not run.

        **Cancellation:** ends the program.
        """
        try:
            with trio.move_on_after(_ANSWERS_WITHIN):
                done = await trio.run_process(
                    [self.path, "--version"], capture_stdout=True, stderr=subprocess.DEVNULL
                )
                return done.stdout.decode(errors="replace").strip()
        except (OSError, subprocess.CalledProcessError) as error:
            raise MissingProgram(f"{self.path} does not run: {error}") from error
        raise MissingProgram(f"{self.path} did not tell its version in {_ANSWERS_WITHIN:.0f} s")


CODEX_INSTALL = "python -m pip install openai-codex-cli-bin==0.163.0"


def find_codex(path: str | os.PathLike[str] | None = None) -> Program:
    """The codex at `path`, else the one on PATH, else the one that the extra `bench` brings.

    Raises:
        MissingProgram: there is none.
    """
    if path is not None:
        found = shutil.which(os.fspath(path))
        if found is None:
            raise MissingProgram(f"no program at {os.fspath(path)}; install one: {CODEX_INSTALL}")
        # Whoever runs it may do so in another folder.
        return Program("codex", os.path.abspath(found))
    if found := shutil.which("codex"):
        return Program("codex", os.path.abspath(found))
    try:
        from codex_cli_bin import bundled_codex_path  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise MissingProgram(f"codex is not installed; install it: {CODEX_INSTALL}") from None
    return Program("codex", str(bundled_codex_path()))


def codex_env(url: str, home: str | os.PathLike[str]) -> dict[str, str]:
    """The whole environment of a codex that asks the lab at `url` and keeps itself in `home`.

    Writes `home/config.toml`; `home` is made where it is missing.
    """
    folder = Path(home).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(_CODEX_CONFIG.format(url=url))
    return {"CODEX_HOME": str(folder), "HOME": str(folder), "PATH": os.environ.get("PATH", "")}
