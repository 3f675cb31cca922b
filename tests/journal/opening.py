"""A process that opens a journal, as somebody who may do less than whoever has started it.

    python -m tests.journal.opening PATH USER

Prints what came of it as a line of JSON. `USER` is a number; 0 stays who it is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import trio

from turnstop.journal import open_journal


async def main(path: str) -> dict[str, str]:
    try:
        async with open_journal(path):
            return {"opened": path}
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # So that all is imported: it need not be somebody who can read that.
        trio.run(main, f"{folder}/turns.db")
    if user := int(sys.argv[2]):
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    print(json.dumps(trio.run(main, sys.argv[1])))
