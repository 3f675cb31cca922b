"""What people see of their own turns: one settlement, their block, their words, their errors."""

from __future__ import annotations

from collections.abc import Generator

from ..._ending import Ending
from ._person import NEVER, Person
from ._seen import Seen
from ._world import World

__all__ = ["CHECKS", "check_settled"]

Found = Generator[tuple[str, str]]


def check_settled(person: Person, world: World) -> Found:
    """Each turn is settled once, and the observers are told once, of the same."""
    settlement, told = person.turn.settlement, len(person.told)
    if settlement is None:
        if told or (person.left_at < NEVER and not person.shut_out):
            yield "settled", f"has left, and has no settlement; observers were told {told} times"
        return
    if told == 0 and person.step.how == "early" and world.closing <= settlement.settled_at:
        return  # Stopped before entering, and nobody is left who could tell.
    if told != 1:
        yield "settled", f"observers were told {told} times"
    elif (person.told[0].ending, person.told[0].settled_at) != (
        settlement.ending,
        settlement.settled_at,
    ):
        yield "settled", f"observers were told of {person.told[0]}"


def check_block(v: Seen) -> Found:
    """A block is left in the instant in which its turn is settled and its body has left."""
    if v.p.body_left_at < NEVER:
        due = max(v.p.body_left_at, v.s.settled_at)
        if abs(v.p.left_at - due) > v.tolerance:
            yield "block", f"its body left at {v.p.body_left_at}, its block at {v.p.left_at}"


def check_body(v: Seen) -> Found:
    """A body that does not shield itself is cancelled in the instant of the stop."""
    p = v.p
    if p.entered_at == NEVER or p.step.how in ("shield", "cling"):
        return
    due = min(v.asked_at, p.stopped_at)
    if v.s.ending is Ending.FAILED and v.undisturbed and p.step.how not in ("slow", "apart"):
        due = min(due, max(v.ordered("fail"), v.revealed_at))
    if due < NEVER and p.body_left_at > max(due, p.entered_at) + v.tolerance:
        yield "body", f"its body went on until {p.body_left_at}"


def check_errors(v: Seen) -> Found:
    """The body's own error leaves as it is; another is the turn's own, and raised once."""
    p, s = v.p, v.s
    if p.own is not None:
        if p.error is not p.own:
            yield "leak", f"its body raised {p.own!r}, its block {p.error!r}"
        return
    unasked = s.request is None or s.request.kind == "backlog"
    if p.error is not None and not (unasked and p.error in s.errors):
        yield "leak", f"its block raised {p.error!r}"
    spared = p.cancelled or v.world.cancelled
    given = [error for error in (p.error, p.caught) if error is not None]
    if s.ending is Ending.FAILED and unasked and not given and not spared:
        yield "error", "it failed, and its block raised nothing"
    if p.caught is not None and not (unasked and p.caught in s.errors):
        yield "leak", f"its reader was given {p.caught!r}"
    if len(given) > 1:
        yield "error", f"its reader was given {p.caught!r}, and its block raised {p.error!r}"


def check_reader(v: Seen) -> Found:
    """A reader in another task comes to its end when the turn does."""
    if v.p.step.how == "apart" and v.p.entered_at < NEVER:
        due = max(v.s.settled_at, v.p.entered_at)
        if v.p.read_until > due + v.tolerance:
            yield "reader", f"its reader waits until {v.p.read_until}"


def check_words(v: Seen) -> Found:
    """What a turn says before it completes is heard by whoever reads to the end."""
    complete = v.s.ending is Ending.FINISHED and v.s.request is None and v.undisturbed
    if v.p.to_end and complete and "finish" in v.p.ordered and len(v.p.heard) != v.p.said:
        yield "words", f"{v.p.said} words were said, {len(v.p.heard)} heard"


def check_asks(v: Seen) -> Found:
    """A question that was read is answered by a stop, unless the work is over at once."""
    if v.w is None or not v.undisturbed:
        return
    consents = {(*ask.choices, "yes")[0] for ask in v.p.asks} - {*v.p.given}
    for consent in consents:
        if any(v.world.probe.carries(told, consent) for told in v.w.replies):
            yield "asks", f"nobody has answered {consent!r}, and {v.w.replies} was told"
    if not v.s.gone or v.asked_at == NEVER:
        return
    if v.world.outlives(v.w, v.asked_at) and len(v.w.replies) < len(v.p.asks):
        yield "asks", f"{len(v.p.asks)} questions were read, {len(v.w.replies)} answered"


CHECKS = (check_block, check_body, check_errors, check_reader, check_words, check_asks)
