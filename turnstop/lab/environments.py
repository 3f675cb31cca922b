"""How each real program is pointed at a lab: its whole environment, and the files in its home.

Every program here then reaches nothing but loopback, and needs no account. Each line is what its
program, in the version of its pin, was seen to need or to do without.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .pins import PINS, lab_home

__all__ = ["RUN_VARIABLE", "copilot_session", "program_env"]

RUN_VARIABLE = "TURNSTOP_LAB_RUN"
_KEY = "none-is-needed"
_NOWHERE = "http://127.0.0.1:9"
# Of what looks around in the network however it is told not to; the lab itself is asked by HTTP.
_NO_NETWORK = {"HTTPS_PROXY": _NOWHERE, "NO_PROXY": "127.0.0.1,localhost"}
_MODEL = "fake-model"
_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
# Where to find programs, where to put what is temporary, and whose run this is.
_INHERITED = ("PATH", "TMPDIR", RUN_VARIABLE)

_CODEX_CONFIG = """\
model = "{model}"
model_provider = "lab"
approval_policy = "{approvals}"
sandbox_mode = "{sandbox}"
check_for_update_on_startup = false

[model_providers.lab]
name = "Lab"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
{key}
[features]
plugins = false
apps = false
shell_snapshot = false

[analytics]
enabled = false
"""

_OMP_MODELS = """\
providers:
  lab:
    baseUrl: {url}/v1
    apiKey: {key}
    api: openai-completions
    models:
      - id: {model}
        name: Fake
        reasoning: false
        input: [text]
        contextWindow: 100000
        maxTokens: 4096
        cost: {{input: 0, output: 0, cacheRead: 0, cacheWrite: 0}}
"""


def program_env(name: str, url: str, home: str | os.PathLike[str]) -> dict[str, str]:
    """The whole environment of a program that asks the lab at `url` and keeps itself in `home`.

    Writes the program's settings into `home`, which is made where it is missing. Of this process's
    environment it is given nothing but PATH, TMPDIR and the mark of the run that it belongs to.

    Raises:
        KeyError: the lab knows no program of this name.
    """
    folder = Path(home).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(folder), "CI": "1", "NO_COLOR": "1"}
    env |= {variable: str(folder / below) for variable, below in _XDG.items()}
    env |= {key: os.environ[key] for key in _INHERITED if key in os.environ}
    return env | _CONFIGURE[PINS[name].name](url, folder)


def _codex(url: str, home: Path) -> dict[str, str]:
    return _write_codex(url, home, approvals="never", sandbox="danger-full-access")


def _codex_acp(url: str, home: Path) -> dict[str, str]:
    return _write_codex(url, home, approvals="on-request", key='env_key = "LAB_KEY"\n')


def _zed_codex_acp(url: str, home: Path) -> dict[str, str]:
    # Now and then its sandbox finds no bubblewrap, and the command does not run.
    sandbox = "danger-full-access"
    return _write_codex(
        url, home, approvals="untrusted", sandbox=sandbox, key='env_key = "LAB_KEY"\n'
    )


def _write_codex(
    url: str, home: Path, *, approvals: str, sandbox: str = "workspace-write", key: str = ""
) -> dict[str, str]:
    text = _CODEX_CONFIG.format(
        url=url, model=_MODEL, approvals=approvals, sandbox=sandbox, key=key
    )
    (home / "config.toml").write_text(text)
    return {"CODEX_HOME": str(home)} | ({"LAB_KEY": _KEY} if key else {})


def _claude(url: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-fake",
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        # It refuses to go without asking where it is root, unless it is told that this is one.
        "IS_SANDBOX": "1",
    }


def _zed_claude(url: str, home: Path) -> dict[str, str]:
    # It asks for the list of plugins whatever it is told.
    return _claude(url, home) | _NO_NETWORK


def _opencode(url: str, home: Path) -> dict[str, str]:
    model = {
        "name": "Fake",
        "tool_call": True,
        "limit": {"context": 100_000, "output": 4096},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Lab",
        "options": {"baseURL": f"{url}/v1", "apiKey": _KEY},
        "models": {_MODEL: model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"lab/{_MODEL}",
        "small_model": f"lab/{_MODEL}",
        "enabled_providers": ["lab"],
        "provider": {"lab": provider},
        "permission": {"bash": "ask"},
    }
    _write_json(home / ".config/opencode/opencode.json", config)
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        # It installs packages into its configuration at every start, from wherever npm does.
        "npm_config_registry": _NOWHERE,
    }


def _copilot(url: str, home: Path) -> dict[str, str]:
    folder = lab_home() / PINS["copilot"].folder
    # Else it unpacks 235 MB into each home. It copes with several that do so at once.
    unpacks = {"COPILOT_PKG_CACHE_HOME": str(folder / "unpacked")} if folder.is_dir() else {}
    return unpacks | {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": _KEY,
        "COPILOT_MODEL": _MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_GITHUB_TELEMETRY_DISABLED": "true",
    }


def copilot_session(url: str) -> dict[str, Any]:
    """The model and the provider of a session of Copilot's SDK that asks the lab at `url`.

    The SDK's headless Copilot takes neither from its environment.
    """
    provider = {"type": "openai", "wire_api": "completions", "base_url": f"{url}/v1"}
    return {"model": _MODEL, "provider": {**provider, "api_key": _KEY}}


def _gemini(url: str, home: Path) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "telemetry": {"enabled": False},
    }
    _write_json(home / ".gemini/settings.json", settings)
    return {
        "GEMINI_API_KEY": _KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def _qwen(url: str, home: Path) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": _MODEL},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "telemetry": {"enabled": False},
    }
    _write_json(home / ".qwen/settings.json", settings)
    return {"OPENAI_API_KEY": _KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": _MODEL}


def _omp(url: str, home: Path) -> dict[str, str]:
    models = home / ".omp/agent/models.yml"
    models.parent.mkdir(parents=True, exist_ok=True)
    models.write_text(_OMP_MODELS.format(url=url, key=_KEY, model=_MODEL))
    # It asks every provider that it knows for its models.
    return dict(_NO_NETWORK)


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


_CONFIGURE: Mapping[str, Callable[[str, Path], dict[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "copilot": _copilot,
    "codex-acp": _codex_acp,
    "zed-codex-acp": _zed_codex_acp,
    "claude-agent-acp": _claude,
    "zed-claude-agent-acp": _zed_claude,
    "gemini": _gemini,
    "qwen": _qwen,
    "omp": _omp,
}
