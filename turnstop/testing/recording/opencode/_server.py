"""The server in memory: it keeps sessions, records what it is told, and obeys its levers."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import httpx2
import trio

from ..._probe import Work
from .._far_http import HeldStarts
from ._http import Request, Stream, answer, read_request
from ._session import ABORTED, Frame, Session, counting

URL = "http://opencode.test"
Cancels: TypeAlias = Literal["obeyed", "held", "refused", "ignored", "unanswered"]

_SET_UP: Frame = {"config": {}, "experimental": []}


class RecordingOpenCode(HeldStarts, httpx2.AsyncBaseTransport):
    """A server with levers.

    Args:
        nursery: for what it does by itself.

    Attributes:
        works: every message that it was sent, refused ones included.
        calls: every request, as `METHOD /path`, in the order in which they came.
        cancels: what becomes of an abort.
        rejecting_ends: whether a rejected permission ends the run, as in the real one.
        ends_after: how many seconds after an abort that is obeyed the work ends.
        version: what it says it is.
        asked: the permissions that are not answered, by id.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.works: list[Work] = []
        self.calls: list[str] = []
        self.cancels: Cancels = "obeyed"
        self.rejecting_ends = False
        self.ends_after = 0.0
        self.refuses = False
        self.version = "1.18.33"
        self.asked: dict[str, tuple[Work, Frame]] = {}
        self.sessions: dict[str, Session] = {}
        self._nursery = nursery
        self._names = counting()
        self._streams: list[Stream] = []
        self._pending: list[Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Take a request.

        **Cancellation:** it stays recorded, and what it began goes on.
        """
        await trio.lowlevel.checkpoint()
        asked = read_request(request)
        self.calls.append(f"{asked.method} {request.url.path}")
        if "trace" in request.extensions:
            await request.extensions["trace"]("http11.send_request_body.complete", {})
        self._pending.append(asked)
        try:
            return await asked.answered_by(self.answer)
        finally:
            self._pending.remove(asked)

    async def answer(self, asked: Request) -> httpx2.Response:
        """Answer a request.

        **Cancellation:** what was begun goes on.
        """
        match asked.path:
            case ("global", "health"):
                return answer({"healthy": True, "version": self.version})
            case ("event",):
                return self._listen()
            case ("session",):
                return answer(self._make().info())
            case ("session", "status"):
                there = [one for one in self.sessions.values() if not one.deleted]
                busy = [one.id for one in there if one.run is not None]
                return answer({number: {"type": "busy"} for number in busy})
            case ("session", number, *rest):
                return await self._of_session(asked, number, rest)
            case ("permission" | "question", number, *_):
                return self._replied(number, asked.body)
            case ("permission",):
                return answer([properties for _, properties in self.asked.values()])
        return answer([])

    def _listen(self) -> httpx2.Response:
        stream = Stream()
        self._streams.append(stream)
        stream.say({"id": "evt_1", "type": "server.connected", "properties": {}})
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)

    def _make(self, parent: str | None = None) -> Session:
        session = Session(f"ses_{next(self._names):012x}", self._say, self._names, parent)
        self.sessions[session.id] = session
        session.tell("session.created", info=session.info())
        return session

    def _remove(self, session: Session, message: str) -> httpx2.Response:
        if session.run is not None:
            return answer({"name": "SessionBusyError", "data": {}}, 400)
        # Also one that is not there is answered by true.
        kept = [one for one in session.messages if one["info"]["id"] != message]
        session.messages[:] = kept
        session.tell("message.removed", messageID=message)
        return answer(True)

    def _fork(self, session: Session) -> Session:
        fork = self._make()
        fork.conversation = session.conversation
        fork.messages = [dict(message) for message in session.messages]
        return fork

    def _say(self, kind: str, properties: Frame) -> None:
        for stream in self._streams:
            stream.say({"id": "evt_1", "type": kind, "properties": properties})

    async def _of_session(self, asked: Request, number: str, rest: list[str]) -> httpx2.Response:
        session = self.sessions.get(number)
        if rest == ["abort"]:
            return await self._abort(session)
        if session is None or session.deleted:
            return answer({"name": "NotFoundError", "data": {}}, 404)
        if asked.method == "DELETE" and rest:
            return self._remove(session, rest[-1])
        if asked.method == "DELETE":
            # What it works on goes on, and nothing but its events tells of that.
            session.deleted = True
            return answer(True)
        if rest == ["fork"]:
            return answer(self._fork(session).info())
        if rest == ["prompt_async"]:
            return await self._prompt(session, asked.body)
        if rest == ["children"]:
            children = [one.info() for one in self.sessions.values() if one.parent == number]
            return answer(children)
        if rest[:-1] == ["message"]:
            found = [one for one in session.messages if one["info"]["id"] == rest[-1]]
            return answer(found[0]) if found else answer({"name": "NotFoundError", "data": {}}, 404)
        return answer(session.messages)

    async def _prompt(self, session: Session, body: Frame) -> httpx2.Response:
        text = " ".join(str(part.get("text", "")) for part in body["parts"])
        work = Work(body["messageID"], text, session.conversation, trio.current_time())
        self.works.append(work)
        if not self.refuses:
            work.began_at = trio.current_time()
            session.take(body, work)
        await self._let_start()
        if self.refuses:
            self._forget(session, work)
            return answer({"name": "BadRequest", "data": {"message": "no"}}, 400)
        return answer(None, 204)

    def _forget(self, session: Session, work: Work) -> None:
        work.began_at = None
        session.run = None

    async def _abort(self, session: Session | None) -> httpx2.Response:
        run = session.run if session is not None else None
        if session is not None and session.last is not None:
            session.last.work.told_at.append(trio.current_time())
        if session is not None and run is None:
            session.go_idle()
        if session is not None and session.parent:
            self._end_agent(session)
            return answer(True)
        if self.cancels == "refused":
            return answer({"name": "UnknownError", "data": {}}, 500)
        if session is not None and run is not None and self.cancels in ("obeyed", "unanswered"):
            if self.ends_after:
                self._nursery.start_soon(self._end_later, session, run)
            else:
                self._end(session, ABORTED)
        if self.cancels in ("held", "unanswered"):
            await trio.sleep_forever()
        return answer(True)

    async def _end_later(self, session: Session, run: Any) -> None:
        await trio.sleep(self.ends_after)
        if session.run is run:
            self._end(session, ABORTED)

    def _end(self, session: Session, error: Frame | None = None, finish: str | None = None) -> None:
        if session.run is None:
            return
        session.end(error, finish)
        # Aborting a session ends its sub-agents that still listen to it.
        for child in self.sessions.values():
            if child.parent == session.id and error is ABORTED:
                self._end_agent(child)

    def _end_agent(self, session: Session) -> None:
        session.deaf -= 1
        if session.deaf < 0:
            self._end(session, ABORTED)

    def _replied(self, number: str, body: Any) -> httpx2.Response:
        work, properties = self.asked.pop(number, (None, {}))
        if work is None:
            return answer({"_tag": "PermissionNotFoundError", "requestID": number}, 404)
        work.replies.append(body.get("reply", body) if isinstance(body, dict) else body)
        told = {"sessionID": properties["sessionID"], "requestID": number}
        self._say("permission.replied", told)
        if self.rejecting_ends and body == {"reply": "reject"}:
            self._end(self._home(work), finish="tool-calls")
        return answer(True)

    # The levers.

    def _of(self, work: Work) -> Session | None:
        """The session that works on it now; None where it is over."""
        working = (one for one in self.sessions.values() if one.run and one.run.work is work)
        return next(working, None)

    def _home(self, work: Work) -> Session:
        """The session that holds its message, or the newest one of its conversation."""
        found = [one for one in self.sessions.values() if one.conversation == work.session]
        return next((one for one in found if one.holds(work.name)), found[-1])

    def refuse_starts(self) -> None:
        """Refuse messages from now on, and those that are held."""
        self.refuses = True
        held = [one for one in self._pending if one.path[-1] == "prompt_async"]
        for request in held:
            session = self.sessions[request.path[1]]
            if session.run is not None:
                self._forget(session, session.run.work)

    def say(self, work: Work, text: str) -> None:
        """Have a work say a piece of its answer."""
        if (session := self._of(work)) is not None:
            session.speak(text)

    def ask(self, work: Work) -> None:
        """Have it ask for a permission."""
        number = f"per_{next(self._names):012x}"
        properties = {
            "id": number,
            "sessionID": self._home(work).id,
            "permission": "bash",
            "patterns": ["rm cake"],
        }
        self.asked[number] = (work, properties)
        self._say("permission.asked", properties)

    def finish(self, work: Work) -> None:
        """Have it complete."""
        if (session := self._of(work)) is not None:
            self._end(session, finish="stop")

    def fail(self, work: Work) -> None:
        """Have it fail."""
        if (session := self._of(work)) is not None:
            self._end(session, {"name": "APIError", "data": {"message": "no flour left"}})

    def say_end_again(self, work: Work) -> None:
        """Say once more what told its end."""
        session = self._home(work)
        for message in session.messages:
            if message["info"].get("parentID") == work.name:
                session.tell("message.updated", info=message["info"])
        session.go_idle()

    def set_to_work(self, work: Work) -> Session:
        """Have it set a sub-agent to work, which has not begun when it is first aborted."""
        child = self._make(self._home(work).id)
        child.deaf = 2
        message = f"msg_{next(self._names):012x}"
        body: Frame = {"messageID": message, "parts": [{"type": "text"}]}
        task = Work(message, "", child.id, trio.current_time(), trio.current_time())
        child.take(body, task)
        return child

    @property
    def alive(self) -> list[str]:
        """The sub-agents that work."""
        return [one.id for one in self.sessions.values() if one.parent and one.run]

    def babble(self) -> None:
        """Send garbage into every stream."""
        for stream in self._streams:
            stream.say_raw("data: lorem ipsum\n\n")

    def cut(self) -> None:
        """Break every connection, and work on."""
        for request in self._pending:
            request.break_off()
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.break_off()

    def die(self) -> None:
        """Break every connection, and work on nothing more; the sessions are on disk."""
        self.cut()
        for session in self.sessions.values():
            if session.run is not None:
                session.run.work.ended_at = trio.current_time()
                session.run = None
        self.asked.clear()
