"""A list of a server's rooms, from a terminal."""

from __future__ import annotations

from programs import serve


def test_rooms_are_listed_with_what_each_waits_for() -> None:
    with serve() as program:
        assert program.run("rooms").stdout.startswith("no rooms yet")
        program.told("send", "a b", "tidy up")
        asked = program.wait_for(lambda event: event["type"] == "ask", room="a%20b")
        listed = program.run("rooms").stdout
        assert f"a b: works on {asked['turn_id']}, 1 not finished" in listed
        assert f"    asks {asked['id']}: {asked['text']} [allow / deny]" in listed
        program.told("stop", "a b", "--wait")
        assert program.run("rooms").stdout == "a b: paused (turnstop play 'a b'), 1 not finished\n"
        assert [state["room"] for state in program.told("rooms")] == ["a b"]
