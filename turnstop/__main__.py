"""`python -m turnstop`: the `turnstop` command of this very Python."""

from __future__ import annotations

from .cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m turnstop")
