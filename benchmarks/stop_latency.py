"""How soon a stop over HTTP is answered and sent while rooms stream, beside Hypercorn alone.

    python benchmarks/stop_latency.py          # 100 rooms, 5 rounds of 200 stops
    python benchmarks/stop_latency.py --small  # a smoke

Each round starts a server with that many rooms, each of which says something 20 times a second, and
another process that listens to all of them; then a third, this one, posts one stop after another,
and lets the room go on. So it does with a bare Hypercorn (Trio worker) that streams as many events
of the same size and answers a POST with as much; the two take turns in going first. Prints JSON.

Status 1 where the 99th percentile of a stop's answer is over 1.5 times that of the bare one, or
over 100 ms, or that of asked -> sent is over 250 ms. A smoke is too short for that: there the
medians are held to those caps.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

SIDE = Path(__file__).with_name("_stop_latency_side.py")
TOKEN = "of-a-benchmark"
PERIOD = 0.05
PAUSE = (0.005, 0.025)
MOST_RATIO, MOST_ANSWER, MOST_SENT = 1.5, 100.0, 250.0


@attrs.define
class Found:
    """Milliseconds of each stop, and events a second that were heard meanwhile."""

    answered: list[float] = attrs.field(factory=list)
    sent: list[float] = attrs.field(factory=list)
    events: list[float] = attrs.field(factory=list)


@contextmanager
def program(*args: str) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]], None, None]:
    with subprocess.Popen(
        [sys.executable, str(SIDE), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def measure(kind: str, rooms: int, stops: int, found: Found) -> None:
    with program(kind, str(rooms), str(PERIOD)) as (_, told):
        url: str = told["url"]
        with program("listen", url, str(rooms)) as (listener, _):
            begun = time.perf_counter()
            press_all(kind, url, rooms, stops, found)
            seconds = time.perf_counter() - begun
            events = json.loads(listener.communicate()[0])["events"]
            found.events.append(events / seconds)
        if kind == "turnstop":
            found.sent += sent(url, rooms)


def press_all(kind: str, url: str, rooms: int, stops: int, found: Found) -> None:
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def press(number: int, what: str) -> dict[str, Any]:
        client.request("POST", f"/rooms/room-{number}/{what}", b'{"reason": "enough"}', headers)
        response = client.getresponse()
        assert response.status == 202
        answer: dict[str, Any] = json.loads(response.read())
        return answer

    for number in range(stops):
        time.sleep(random.uniform(*PAUSE))
        begun = time.perf_counter()
        answer = press(number % rooms, "stop")
        found.answered.append((time.perf_counter() - begun) * 1e3)
        assert answer["turn_ids"], "there was no turn to stop"
        press(number % rooms, "play")
    client.close()


def sent(url: str, rooms: int) -> list[float]:
    """Milliseconds from asked to sent, of each stop."""
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    found = []
    for number in range(rooms):
        path = f"/rooms/room-{number}/settlements"
        client.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        for one in json.loads(client.getresponse().read()):
            assert one["ending"] == "stopped"
            found.append((one["sent_at"] - one["asked_at"]) * 1e3)
    client.close()
    return found


def summary(values: list[float]) -> dict[str, float]:
    return {
        "n": len(values),
        "p50_ms": round(statistics.median(values), 3),
        "p99_ms": round(statistics.quantiles(values, n=100, method="inclusive")[98], 3),
        "max_ms": round(max(values), 3),
    }


def main() -> int:
    """Measure both, several times, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    rooms, rounds, stops = (10, 1, 20) if small else (100, 5, 200)
    found = {"bare": Found(), "turnstop": Found()}
    for number in range(rounds):
        for kind in ["bare", "turnstop"][:: -1 if number % 2 else 1]:
            measure(kind, rooms, stops, found[kind])
    bare, ours = (summary(found[kind].answered) for kind in ("bare", "turnstop"))
    asked = summary(found["turnstop"].sent)
    ratios = {key: round(ours[key] / bare[key], 3) for key in ("p50_ms", "p99_ms")}
    told = {
        "rooms": rooms,
        "rounds": rounds,
        "events_per_second": {
            kind: round(statistics.mean(one.events)) for kind, one in found.items()
        },
        "bare": bare,
        "stop": ours,
        "ratio": {key.removesuffix("_ms"): value for key, value in ratios.items()},
        "asked_to_sent": asked,
    }
    print(json.dumps(told))
    key = "p50_ms" if small else "p99_ms"
    kept = ours[key] <= MOST_ANSWER and asked[key] <= MOST_SENT
    return 0 if kept and (small or ratios[key] <= MOST_RATIO) else 1


if __name__ == "__main__":
    sys.exit(main())
