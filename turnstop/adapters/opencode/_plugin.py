"""What opencode is begun with, so that each process of its tools says whose it is.

opencode's plugins may add to the environment of what its shell tool runs, and are told the session
and the call (`shell.env`, in 1.18). The server's password is taken away there: a tool needs none.

With a plugin, opencode waits until npm has fetched what its folder of settings may need. Where
there is no network, npm tries again for minutes: so it is told not to, and the tools' npm is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SESSION: Final = "TURNSTOP_OPENCODE_SESSION"
CALL: Final = "TURNSTOP_OPENCODE_CALL"
PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"
_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_RETRIES: Final = "npm_config_fetch_retries"
_NPMS_OWN: Final = "2"


def with_plugin(folder: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """Write the plugin into `folder`; the variables that have opencode load it.

    `given` is its environment without them. What that configures already is added to.
    """
    added = {PASSWORD: "", _RETRIES: given.get(_RETRIES) or _NPMS_OWN}
    path = Path(folder, "turnstop.js")
    path.write_text(
        "export const Turnstop = async () => ({\n"
        '  "shell.env": async (input, output) => {\n'
        f"    Object.assign(output.env, {json.dumps(added)})\n"
        f'    output.env.{SESSION} = input.sessionID ?? ""\n'
        f'    output.env.{CALL} = input.callID ?? ""\n'
        "  },\n"
        "})\n"
    )
    try:
        config = json.loads(given.get(_CONTENT) or "{}")
    except ValueError:
        # It may be JSON with comments, which is not ours to take apart.
        return {}
    if not isinstance(config, dict):
        return {}
    plugins = config.get("plugin")
    listed = plugins if isinstance(plugins, list) else []
    content = json.dumps({**config, "plugin": [*listed, path.as_uri()]})
    return {_CONTENT: content, _RETRIES: given.get(_RETRIES) or "0"}
