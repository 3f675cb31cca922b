"""An environment of its own for Parlant, and the tests that need it. Standard library only.

python tests/real/parlant_env.py                  # makes it, and runs the tests in it
python tests/real/parlant_env.py --install        # makes it only
python tests/real/parlant_env.py -- -k stop -x    # what follows is pytest's

Parlant brings 160 packages, 1.2 GB of them, and pins some that others need in other versions. What
is tested there is this tree, installed anew each time; Parlant itself stays.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
EXTRAS = "lab,parlant,testing"
TOOLS = ("pytest>=8.2", "pytest-trio>=0.8", "rich>=15")
TESTS = (
    "test_parlant.py",
    "test_recovery_parlant.py",
    "test_golden_parlant.py",
    "test_probe_parlant.py",
)
# Parlant closes its sockets when it is collected.
WARNINGS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
FOLDER_VARIABLE = "TURNSTOP_PARLANT_ENV"
RUN_VARIABLE = "TURNSTOP_PARLANT"
MB = 1 << 20
NEEDS_MB = 1500
LINES = 20


class Failed(Exception):
    """Something did not work; the text is for people."""


def default_folder() -> Path:
    """Where it goes: as said in the environment, else beside the lab's programs."""
    if said := os.environ.get(FOLDER_VARIABLE):
        return Path(said).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    lab = os.environ.get("TURNSTOP_LAB_HOME") or Path(cache, "turnstop", "lab")
    return Path(lab, "parlant-environment").absolute()


def need_parlant() -> None:
    """Skip the module that calls this where Parlant is not installed, and say what to do.

    Raises:
        ImportError: it is not, and this is where it has to be.
    """
    if importlib.util.find_spec("parlant") is not None:
        return
    text = "parlant is not installed here, and is tested apart: python tests/real/parlant_env.py"
    if os.environ.get(RUN_VARIABLE) == "require":
        raise ImportError(text)
    import pytest

    pytest.skip(text, allow_module_level=True)


def parse() -> tuple[argparse.Namespace, list[str]]:
    """The command line, and what of it is pytest's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--install", action="store_true", help="make it, and run nothing")
    parser.add_argument(
        "--folder",
        type=Path,
        default=default_folder(),
        help=f"where it is (default: %(default)s; or set {FOLDER_VARIABLE})",
    )
    options, rest = parser.parse_known_args()
    if rest and rest[0] != "--":
        parser.error(f"unknown: {' '.join(rest)} (what is pytest's comes after --)")
    return options, rest[1:]


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"parlant_env: {text}", flush=True)


def run(*command: object) -> None:
    """Run a command quietly; where it fails, tell the end of what it said."""
    done = subprocess.run(
        [str(one) for one in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-LINES:])
        raise Failed(f"{' '.join(map(str, command[:6]))} ... ended with {done.returncode}:\n{tail}")


def wanted() -> str:
    """What makes an environment the right one: what goes into it, and the Python."""
    with (TREE / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    needs = {name: extras[name] for name in ("aio", *EXTRAS.split(","))}
    text = json.dumps([sys.version, TOOLS, project["dependencies"], needs])
    return hashlib.sha256(text.encode()).hexdigest()


def install(folder: Path) -> Path:
    """Make the environment, or take the one that is there, and put this tree into it.

    Returns:
        Its Python.

    Raises:
        Failed: it could not be made.
    """
    if not (3, 11) <= sys.version_info < (3, 14):
        raise Failed(
            f"Parlant's bridge needs Python 3.11 to 3.13: this is {sys.version.split()[0]}"
        )
    python, stamp = folder / "bin" / "python", folder / "turnstop-stamp"
    began = time.monotonic()
    if not stamp.exists() or stamp.read_text() != wanted():
        fill(folder, python)
        stamp.write_text(wanted())
    say("this tree")
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input")
    run(*pip, "--no-deps", "--force-reinstall", TREE)
    say(f"ready in {folder} after {time.monotonic() - began:.0f} s")
    return python


def fill(folder: Path, python: Path) -> None:
    """Make it from nothing."""
    if folder.exists():
        if not (folder / "pyvenv.cfg").exists():
            raise Failed(f"{folder} is there, and is no environment: name another --folder")
        say("the one that is there is another one, or incomplete: making it anew")
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder.parent).free // MB) < NEEDS_MB:
        raise Failed(f"{folder.parent} has {free} MB free, and {NEEDS_MB} are needed")
    say(f"Parlant and what it needs, into {folder}: 1.2 GB, one to two minutes")
    venv.create(folder, with_pip=True)
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input")
    run(*pip, "--upgrade", "pip")
    run(*pip, f"{TREE}[{EXTRAS}]", *TOOLS)


def test(python: Path, arguments: list[str]) -> int:
    """Run the tests, and return their status."""
    tests = [str(TREE / "tests" / "real" / name) for name in TESTS]
    environment = {**os.environ, RUN_VARIABLE: "require"}
    options = ["-q", "-p", "no:cacheprovider", *(f"-W{one}" for one in WARNINGS)]
    # Nothing of the tree but its tests is imported: turnstop is what was installed.
    command: list[object] = [python, "-P", "-m", "pytest", "-c", TREE / "pyproject.toml"]
    command += [*options, *tests, *arguments]
    return subprocess.run(
        [str(one) for one in command], env=environment, cwd=python.parent, check=False
    ).returncode


def main() -> int:
    """Do as the command line says."""
    options, arguments = parse()
    try:
        python = install(options.folder.absolute())
    except (Failed, OSError) as error:
        print(f"parlant_env: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("parlant_env: interrupted; the next run makes it anew", file=sys.stderr)
        return 130
    return 0 if options.install else test(python, arguments)


if __name__ == "__main__":
    sys.exit(main())
