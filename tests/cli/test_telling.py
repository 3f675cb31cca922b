"""What is told to whom may not read it."""

from __future__ import annotations

import io
import logging
import os
import threading
import time

import pytest

from turnstop.cli.serve.telling import Lines, log_to


def test_lines_for_which_there_is_no_room_are_counted() -> None:
    theirs, ours = os.pipe()
    with open(ours, "w") as stream, open(theirs) as told:
        lines = Lines(stream)
        for number in range(3000):
            lines.say(f"{number} {'x' * 200}")
        found = list[str]()
        reading = threading.Thread(target=lambda: found.extend(told))
        reading.start()
        time.sleep(0.2)
        lines.say("the last")
        lines.close()
        stream.close()
        reading.join(30)
    assert found[-1] == "the last\n"
    dropped = [int(one.split()[1]) for one in found if one.startswith("... ")]
    assert sum(dropped) > 1000
    assert len(found) - len(dropped) + sum(dropped) == 3001


def test_a_bad_log_line_is_nothing_to_whoever_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    told = io.StringIO()
    log_to(Lines(told), logging.WARNING)
    logging.getLogger("turnstop.server").warning("%d rooms", "no number")
    logging.getLogger("turnstop.server").warning("%d rooms", 3)
    assert told.getvalue().endswith("WARNING turnstop.server: 3 rooms\n")
    assert "Logging error" in capsys.readouterr().err
