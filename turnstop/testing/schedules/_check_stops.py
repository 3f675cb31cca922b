"""The asking and the telling: in time, in its name, once."""

from __future__ import annotations

from collections.abc import Generator

from ..._ending import Ending
from ._person import NEVER
from ._seen import Seen

__all__ = ["CHECKS"]

PACE = 0.5
Found = Generator[tuple[str, str]]


def check_asking(v: Seen) -> Found:
    """Whoever stops a turn, or leaves its block, while it goes on, has asked."""
    due = min(v.p.stopped_at, v.p.body_left_at)
    # What ends from outside is stopped in that step; people inside are cancelled one by one.
    if (v.world.how == "cancel" or not v.world.inside) and v.p.queued_at < v.world.closing:
        due = min(due, v.world.closing)
    goes_on = v.s.settled_at > due + v.tolerance and v.s.ending is not Ending.FAILED
    if due < NEVER and goes_on and v.asked_at > due + v.tolerance:
        yield "asked", f"was stopped or left at {due}"
    if v.s.request is None and v.s.ending in (Ending.STOPPED, Ending.KILLED):
        yield "asked", "was stopped, and nobody asked"


def check_reason(v: Seen) -> Found:
    """A stop is in the name of whoever asked first."""
    request = v.s.request
    if request is None:
        return
    given = (request.kind, request.reason)
    named = request.kind in ("stop", "stop_all", "retire")
    if named and given not in v.p.reasons:
        yield "reason", f"is stopped by {given}; asked it was by {sorted(v.p.reasons)}"
    if request.kind == "closing" and v.asked_at < v.world.closing - v.tolerance:
        yield "reason", "is stopped by a closing that came later"


def check_telling(v: Seen) -> Found:
    """The far end is told once, and only where somebody asked or the turn was lost."""
    for work in v.works:
        # Whether it has arrived is not known where the connection broke under it.
        if len(work.told_at) > 1 and work.told_at[1] < v.world.disturbed_at:
            yield "told once", f"the far end was told at {work.told_at}"
    if len(v.works) > 1 and v.undisturbed:
        yield "started once", f"the far end was asked for it {len(v.works)} times"
    if v.told_at < v.asked_at - v.tolerance and not v.s.errors:
        yield "told unasked", f"the far end was told at {v.told_at}, and nobody had asked"


def check_told_at_once(v: Seen) -> Found:
    """The far end is told in the instant of the asking, or of the reveal."""
    due = max(v.asked_at, v.revealed_at)
    if not v.undisturbed or due >= v.asked_at + v.bound - v.tolerance:
        return
    if v.revealed_at > v.asked_at and not v.able("early_stop"):
        return
    # An adapter may have to try again and again where the turn is not known yet, or asked for.
    at_once = v.revealed_at <= v.asked_at and v.able("end_seen")
    prompt = v.prompt if at_once else v.prompt + PACE
    runs = v.over_at > due + prompt and v.runs_at(due)
    if v.s.ending is not Ending.FAILED and runs and v.told_at > due + prompt:
        yield "told at once", f"the far end was due to be told at {due}: {v.told_at}"


def check_times(v: Seen) -> Found:
    """Asked, sent, acknowledged, ended and settled come in their order, and are true."""
    s = v.s
    for earlier, later in (
        ("asked_at", "sent_at"),
        ("asked_at", "settled_at"),
        ("sent_at", "settled_at"),
        ("acked_at", "settled_at"),
        ("ended_at", "settled_at"),
    ):
        first, second = getattr(s, earlier), getattr(s, later)
        if first is not None and second is not None and first > second + v.tolerance:
            yield "times", f"{earlier} is later than {later}"
    early = s.ended_at is not None and s.ended_at < v.over_at - v.tolerance
    if early and s.gone and v.over_at < NEVER:
        yield "times", "the end is said to have been seen before it came"
    if v.undisturbed and v.told_at < NEVER:
        yield from _check_sent(v)


def _check_sent(v: Seen) -> Found:
    sent, acked = v.s.sent_at, v.s.acked_at
    if sent is None and v.s.settled_at > v.told_at + v.prompt:
        yield "times", f"the far end was told at {v.told_at}, and sent_at is None"
    late = min(v.s.settled_at, v.over_at) > v.told_at + v.prompt
    if v.manner == "refuse_cancels" and late and not v.s.errors:
        yield "refused", "the cancel was refused, and no error says so"
    silent = v.manner in ("hold_cancels", "hold_acknowledgements")
    if silent and acked is not None and acked < min(v.over_at, v.s.settled_at) - v.tolerance:
        yield "times", "it is said to be acknowledged, and nobody answered"


CHECKS = (check_asking, check_reason, check_telling, check_told_at_once, check_times)
