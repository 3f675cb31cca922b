"""Doubles of npm, node and pip: they keep what they are told, and install what says a version."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import attrs
import pytest

from turnstop.lab import PINS
from turnstop.lab.pins import HOME_VARIABLE

_TOOL = """\
#!{python}
import json, os, pathlib, sys, time
args = sys.argv[1:]
if "--version" in args:
    print("v20.1.0")
    sys.exit()
here = pathlib.Path({folder!r})
with (here / "told").open("a") as file:
    file.write(json.dumps([{name!r}, *args]) + "\\n")
PROGRAM = {program!r}
orders = json.loads((here / "orders").read_text())
new = pathlib.Path(args[args.index({target!r}) + 1])
for pin in orders["pins"]:
    if pin["packages"][-1] in args:
        for path in pin["paths"]:
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            version = orders["says"].get(pin["name"], pin["version"])
            (new / path).write_text(PROGRAM.replace("VERSION", version))
            (new / path).chmod(0o755)
print("what it says", flush=True)
if orders["waits"]:
    (here / "waiting").touch()
    time.sleep(300)
if orders["status"]:
    print("the last line", file=sys.stderr)
sys.exit(orders["status"])
"""
# It says its version, or answers `initialize`.
_PROGRAM = """\
#!/bin/sh
case "$*" in *--version) echo VERSION; exit;; esac
read asked
echo '{"id":1,"result":{"agentInfo":{"version":"VERSION"}}}'
read more
"""
# A script of an npm package is run by `node`: this one runs it as it is.
_NODE = '#!/bin/sh\n[ "$1" = --version ] && {{ echo {version}; exit; }}\nexec "$@"\n'


@attrs.define
class Tools:
    """npm, node and pip on a PATH of their own, and the lab's folder that they fill."""

    folder: Path
    home: Path

    def order(self, *, status: int = 0, waits: bool = False, **says: str) -> None:
        """From now on: what they exit with, whether they hang, and versions that are others."""
        pins = [
            {
                "name": pin.name,
                "version": pin.version,
                "packages": pin.requirements,
                "paths": pin.paths,
            }
            for pin in PINS.values()
        ]
        orders = {"pins": pins, "status": status, "waits": waits, "says": says}
        (self.folder / "orders").write_text(json.dumps(orders))

    @property
    def told(self) -> list[list[str]]:
        """What each was started with."""
        file = self.folder / "told"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    made = Tools(tmp_path / "bin", tmp_path / "home")
    made.folder.mkdir()
    texts = {"python": sys.executable, "folder": str(made.folder), "program": _PROGRAM}
    made.write("npm", _TOOL.format(**texts, name="npm", target="--prefix"))
    made.write("pip", _TOOL.format(**texts, name="pip", target="--target"))
    made.write("node", _NODE.format(version="v20.1.0"))
    made.order()
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv(HOME_VARIABLE, str(made.home))
    monkeypatch.setattr("turnstop.lab.installing._PIP", (str(made.folder / "pip"),))
    monkeypatch.setattr("turnstop.lab.programs._site_packages", lambda pin: [])
    return made
