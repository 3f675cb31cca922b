"""The OpenAPI document against the server: what it allows is taken, and nothing else; and what is
answered is what it says.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import httpx2
import pytest
import schemathesis
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import ignored_auth
from servers import SETTINGS, TOKEN, serving

from turnstop.adapters.local import Work
from turnstop.events import Ask, Text, Thought, ToolCall
from turnstop.feeds.sqlite import open_sqlite_feed
from turnstop.server._routes import OPERATIONS

SECONDS = float(os.environ.get("TURNSTOP_FUZZ", 12))
"""For all that is tried; where it is said, what is tried is another each time."""
EXPLORES = "TURNSTOP_FUZZ" in os.environ
SETTINGS_OF_IT = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=not EXPLORES,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
ROOMS = ("kitchen", "a/b?c#d%41", "\N{SNOWMAN}\N{GRINNING FACE}", "x" * 196)
IDS = ("a", "", "evil \ufffd", "i" * 1000)
LIMITS = attrs.evolve(SETTINGS, rate=1e6, burst=10**6, rooms=10**6, at_once=1000)


async def hostile(work: Work) -> None:
    """Does as agents do, and worse; the length of what it is told decides."""
    kind = len(str(work.content)) % 7
    if kind == 0:
        work.emit(Text("x" * 200_000))
        work.emit(Thought("\udcff\0"))
    elif kind == 1:
        work.emit(ToolCall("\ud800", "\0", "started", "y" * 200_000))
        raise ValueError("evil \ud800")
    elif kind == 2:
        await trio.sleep_forever()
    else:
        id = ("a", "", "evil \ud800", "i" * 5000)[kind - 3]
        await work.ask(Ask(id, "question", "why \ud800" * 20_000, ("\ud800", "c" * 100_000)))


class Served:
    """A server in a thread, for tests and tools that block."""

    def __init__(self, file: Path) -> None:
        self.url, self._file = "", file
        self._ready, self._over = threading.Event(), trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._serve,))

    async def _serve(self) -> None:
        async with (
            open_sqlite_feed(self._file) as feed,
            serving(hostile, LIMITS, feed) as served,
        ):
            self._token, self.url = trio.lowlevel.current_trio_token(), served.server.url
            self._ready.set()
            with trio.CancelScope(shield=True):
                await self._over.wait()

    @contextmanager
    def running(self) -> Iterator[str]:
        self._thread.start()
        assert self._ready.wait(30)
        try:
            yield self.url
        finally:
            self._token.run_sync_soon(self._over.set)
            self._thread.join(30)
            assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Served(tmp_path_factory.mktemp("fuzz") / "messages.db").running() as found:
        yield found


HEADERS = {"Authorization": f"Bearer {TOKEN}"}
CONFIG = {
    "request-timeout": 30,
    "checks": {
        # A room that is not there, or a question that nobody asks, is well formed.
        "positive_data_acceptance": {"expected-statuses": ["2xx", 404, 409]},
        "negative_data_rejection": {"expected-statuses": [400, 401, 404, 405, 413]},
    },
}


def read_document(url: str) -> Any:
    found = httpx2.get(f"{url}/openapi.json", trust_env=False).json()
    return schemathesis.openapi.from_dict(found, config=SchemathesisConfig.from_dict(CONFIG))


def make_rooms(url: str, number: int) -> list[str]:
    """Rooms whose turns wait for an answer to one of `IDS`, and each has settled one."""
    rooms = [f"{room}-{number}" for room in ROOMS]
    with httpx2.Client(base_url=url, headers=HEADERS, trust_env=False) as http:
        http.post("/play")
        for kind, room in enumerate(rooms, 3):
            for content in ("7" * 7, "x" * kind):
                path = f"/rooms/{quote(room, safe='')}/messages"
                assert http.post(path, json={"content": content}).status_code == 202
        end = time.monotonic() + 30
        while time.monotonic() < end:
            asking = {one["room"] for one in http.get("/rooms").json() if one["asks"]}
            if asking >= {*rooms}:
                return rooms
            time.sleep(0.05)
    raise AssertionError(f"only {asking} ask")


def cases_of(operation: Any, mode: GenerationMode, rooms: Sequence[str]) -> st.SearchStrategy[Any]:
    """Requests; of those with a room, many to rooms that are there."""
    found = [operation.as_strategy(generation_mode=mode)]
    if "{room}" in operation.path:
        known = [{"room": room} for room in rooms]
        found += [operation.as_strategy(generation_mode=mode, path_parameters=one) for one in known]
    if operation.path.endswith("/answers"):
        bodies = [{"ask": id, "reply": "x"} for id in IDS]
        found += [
            operation.as_strategy(path_parameters=room, body=body, media_type="application/json")
            for room in known
            for body in bodies
        ]
    return st.one_of(found)


def begin(case: Any, url: str) -> httpx2.Response:
    """Ask for a stream, which never ends; return its beginning."""
    given = case.as_transport_kwargs(base_url=url, headers=HEADERS)
    headers = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in given["headers"].items()
    ]
    params = given["params"] or None
    with httpx2.stream(
        given["method"], given["url"], headers=headers, params=params, trust_env=False
    ) as response:
        content = next(response.iter_raw())
    found = httpx2.Response(
        response.status_code,
        headers={"Content-Type": response.headers["content-type"]},
        content=content,
        request=response.request,
    )
    found.elapsed = timedelta()
    return found


MODES = [
    (one, mode)
    for one in OPERATIONS
    for mode in GenerationMode
    # There is nothing wrong to be said where nothing can be said.
    if mode.is_positive or not one.is_open
]


@pytest.mark.parametrize(("one", "mode"), MODES, ids=lambda one: getattr(one, "name", None))
def test_what_is_allowed_is_taken_and_nothing_else(
    one: Any, mode: GenerationMode, url: str
) -> None:
    operation = read_document(url)[one.path][one.method]
    cases = cases_of(operation, mode, make_rooms(url, MODES.index((one, mode))))
    end, failed = time.monotonic() + SECONDS / len(MODES), False

    @SETTINGS_OF_IT
    @given(case=cases)
    def fuzz(case: Any) -> None:
        nonlocal failed
        if time.monotonic() > end and not failed:
            return
        try:
            check(case, url, is_stream=one.gives is None)
        except BaseException:
            failed = True
            raise

    fuzz()
    while EXPLORES and time.monotonic() < end:
        fuzz()


def check(case: Any, url: str, *, is_stream: bool) -> None:
    if is_stream:
        case.validate_response(begin(case, url), excluded_checks=[ignored_auth])
    else:
        case.call_and_validate(base_url=url, headers=HEADERS)


def test_the_document_is_of_openapi_3_1(url: str) -> None:
    found = read_document(url)
    assert found.raw_schema["openapi"] == "3.1.0"
    found.validate()
