"""The end: true, seen, in time."""

from __future__ import annotations

from collections.abc import Generator

from ..._ending import Ending, Proof
from ..._errors import BackendRefused
from .._probe import has_lever
from ._person import NEVER
from ._seen import Seen

__all__ = ["CHECKS"]

NOTICED = 1.0
AGAIN = 3.0
Found = Generator[tuple[str, str]]


def check_gone(v: Seen) -> Found:
    """`gone` is said of work that is over, UNSTARTED of work that never began."""
    began = [work for work in v.works if work.began_at is not None]
    for work in began:
        over = NEVER if work.ended_at is None else work.ended_at
        if v.s.gone and over > v.s.settled_at + v.tolerance:
            yield "gone", f"the work goes on until {over}"
    if v.s.ending is Ending.UNSTARTED:
        if began:
            yield "unstarted", f"the work began at {began[0].began_at}"
        refused = any(isinstance(error, BackendRefused) for error in v.s.errors)
        if v.works and not refused:
            yield "unstarted", f"the far end was asked for it at {v.works[0].asked_at}"
    if v.s.clean is not (v.s.gone and not v.s.survivors):
        yield "gone", "clean is wrong"
    told = v.s.ending in (Ending.FINISHED, Ending.STOPPED) and v.s.gone
    if told and v.undisturbed and (v.s.proof is None or v.s.ended_at is None):
        yield "gone", f"its end was seen, by {v.s.proof}, at {v.s.ended_at}"


def check_bound(v: Seen) -> Found:
    """Settled within the budget, and not given up earlier."""
    took = v.s.settled_at - v.asked_at
    # Only what a turn has left may take more time, or a far end that does not tell.
    looking = v.budget.kill_within if v.p.left_behind or not v.undisturbed else 0.0
    if took > v.bound + looking + max(v.tolerance, v.prompt):
        yield "bound", f"settled {took:.4f} s after the asking"
    claimed = v.s.proof is Proof.CLAIMED and not v.able("end_seen")
    given_up = v.s.ending is Ending.UNCONFIRMED and not claimed
    if given_up and v.undisturbed and not v.s.errors and took < v.bound - v.tolerance:
        yield "bound", f"given up {took:.4f} s after the asking, the bound is {v.bound} s"


def check_end(v: Seen) -> Found:
    """A work that is told to stop ends; an end is seen, and settles the turn."""
    s, over = v.s, v.over_at
    obeys = v.manner in ("", "hold_acknowledgements") and v.undisturbed and v.able("end_seen")
    if obeys and v.told_at + v.prompt < v.asked_at + v.bound and not s.gone:
        yield "end", f"the work was told to stop at {v.told_at}, and is not known to have ended"
    if not v.undisturbed or v.revealed_at > over or not v.able("end_seen"):
        return
    if over > min(v.asked_at + v.bound, s.settled_at) - v.tolerance and not s.gone:
        return
    looking = v.budget.kill_within if s.request is not None or s.errors else 0.0
    if over < NEVER and s.settled_at > over + looking + v.prompt:
        yield "end", f"the work was over at {over}, and it was settled at {s.settled_at}"
    if over < NEVER and not s.gone:
        yield "end", f"the work was over at {over}, in time, and nobody knows"


def check_ending(v: Seen) -> Found:
    """The ending is what happened: it completed, it failed, or it was stopped."""
    ending, request = v.s.ending, v.s.request
    if not v.works or not v.undisturbed:
        return
    finished, failed = v.ordered("finish"), v.ordered("fail")
    known = v.revealed_at < min(finished, failed) and v.able("end_seen")
    in_time = min(finished, failed) < min(v.asked_at + v.bound, v.s.settled_at + 2 * v.tolerance)
    if finished < NEVER and known and in_time and ending is not Ending.FINISHED:
        yield "ending", f"the work completed at {finished}, and is {ending.value}"
    unasked = failed < v.asked_at - v.prompt and request is None
    if failed < NEVER and known and unasked and ending is not Ending.FAILED:
        yield "ending", f"the work failed at {failed}, and is {ending.value}"
    if has_lever(v.world.probe, "finish"):
        yield from _check_made_up(v)


def _check_made_up(v: Seen) -> Found:
    ordered = {name.partition(" ")[0] for name in v.p.ordered}
    if v.s.ending is Ending.FINISHED and not ordered & {"finish", "perhaps"}:
        yield "ending", "it is finished, and its work never completed"
    refused = any(isinstance(error, BackendRefused) for error in v.s.errors)
    if v.s.ending is Ending.FAILED and not refused and not ordered & {"fail", "perhaps"}:
        yield "ending", "it is failed, and its work never failed"


def check_leftovers(v: Seen) -> Found:
    """What a stopped turn left is swept, or it is said that it is alive."""
    looked = v.s.request is not None and v.revealed_at < v.s.settled_at and v.undisturbed
    if not looked or not v.able("sweep"):
        return
    for name in v.p.left_behind:
        named = any(name in survivor for survivor in v.s.survivors)
        if named is not (name in v.p.alive_then):
            state = "dead" if named else "alive"
            yield "leftovers", f"{name} is {state}, and survivors are {v.s.survivors}"
    if v.s.gone and v.p.alive_then:
        yield "leftovers", f"{sorted(v.p.alive_then)} are not swept"


def check_refused(v: Seen) -> Found:
    """A start that was refused is known to have begun nothing."""
    refused = any(isinstance(error, BackendRefused) for error in v.s.errors)
    nothing_began = v.w is not None and v.w.began_at is None and v.undisturbed
    in_time = v.s.settled_at < v.asked_at + v.bound - v.tolerance
    if refused and nothing_began and in_time and not v.s.gone:
        yield "refused", "its start was refused, and it is not known that nothing began"


def check_death(v: Seen) -> Found:
    """Whoever waits for a work that died with its far end is told."""
    died = v.world.used("die")
    noticed = died + NOTICED
    if abs(v.over_at - died) > v.tolerance or died != v.world.disturbed_at:
        return
    if v.revealed_at < died and NEVER > v.asked_at > noticed:
        yield "death", f"the far end died at {died}, and nobody noticed"
    if v.s.request is None and v.s.settled_at > noticed + v.bound + v.budget.kill_within:
        yield "death", f"the far end died at {died}, and the turn went on"


def check_started(v: Seen) -> Found:
    """Who has entered is worked for, also after the far end was lost, if it comes back."""
    patience = 5 * v.prompt if v.undisturbed else AGAIN
    due = min(v.asked_at, v.p.stopped_at, v.p.body_left_at, v.s.settled_at)
    waited = min([due, *(work.asked_at for work in v.works)]) - v.p.entered_at
    known = has_lever(v.world.probe, "finish") and v.able("restart")
    if v.p.entered_at < NEVER and known and waited > patience:
        yield "started", f"the far end was not asked for it in {waited:.3f} s"


CHECKS = (
    check_gone,
    check_bound,
    check_end,
    check_ending,
    check_leftovers,
    check_refused,
    check_death,
    check_started,
)
