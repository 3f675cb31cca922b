"""What must hold of every turn once the run is over: the contract, told a second time."""

from __future__ import annotations

from collections.abc import Generator

from turnstop import Ending
from turnstop.abc import End

from .ledger import Ledger
from .script import NEVER
from .view import EPS, View, judge, same


def check_all(world: Ledger) -> None:
    for turn_id, record in world.records.items():
        told = len(record.told)
        settlement = record.turn.settlement
        if settlement is None:
            if told or record.calls or (record.queued < NEVER and not record.shut_out):
                world.faults.append(f"{turn_id}: no settlement, told {told} times")
            continue
        if told == 0 and not record.calls and world.closing <= settlement.settled_at:
            continue  # stopped before entering, and nobody is left who could tell
        if told != 1 or record.told[0].settled_at != settlement.settled_at:
            world.faults.append(f"{turn_id}: observers were told {told} times")
        view = View(record, settlement, world)
        for check in CHECKS:
            world.faults += [f"{turn_id}: {fault} ({settlement})" for fault in check(view)]


def check_ending(v: View) -> Generator[str]:
    """The table of endings, from what the backend did."""
    choices = {judge(v, v.known)}
    if v.tied:
        choices |= {judge(v, None), judge(v, v.known, killed=False)}
    if v.s.ending not in {ending for ending, _ in choices}:
        yield f"ending {v.s.ending}, not {choices}"
    elif (v.s.ending, v.s.gone) not in choices:
        yield f"gone is {v.s.gone}, not {choices}"


def check_evidence(v: View) -> Generator[str]:
    """What was seen, when, and what was raised on the way."""
    s, record = v.s, v.record
    proof = v.known.proof if isinstance(v.known, End) else s.proof if v.known else None
    if s.proof is not proof and not v.tied:
        yield f"proof {s.proof}, not {proof}"
    if isinstance(v.known, End) and not v.tied and not same(s.ended_at, record.outcome_at):
        yield f"ended at {record.outcome_at}"
    for name, calls in record.calls.items():
        for call in calls:
            # What follow raises once the ending is known changes nothing any more.
            until = min(v.due, s.settled_at) if name == "follow" else s.settled_at
            seen = isinstance(call.result, Exception) and call.back < until - EPS
            if seen and call.result not in s.errors:
                yield f"{name}() raised {call.result!r}, and it is not in errors"


def check_leftovers(v: View) -> Generator[str]:
    """Listed once where a stop has ended; swept if that is wanted; named if they live."""
    listed, swept = v.called("leftovers"), v.called("sweep")
    if (listed is not None) is not v.reaps:
        yield f"leftovers() is {listed}"
    if listed is None:
        return
    due = listed.at + v.budget.kill_within - EPS
    found = listed.result if listed.back < due else None
    if isinstance(found, list) and (swept is not None) is not (v.sweep and bool(found)):
        yield f"sweep() is {swept}, for {found}"
    if swept is not None and swept.back < due and isinstance(swept.result, list):
        found = swept.result
    named = [name for name in v.s.survivors if name.startswith(("leftover ", "unknown"))]
    if isinstance(found, list) and found != named and not (swept and swept.back >= due):
        yield f"{found} are left"
    if listed.back > due and not isinstance(listed.result, list) and not named:
        yield "nobody knows what is left, and it is not said"


def check_truth(v: View) -> Generator[str]:
    """No lie: `gone` is said of work that is over, UNSTARTED of work that never began."""
    record = v.record
    if v.s.gone and record.began < NEVER and record.over > v.s.settled_at + EPS:
        yield f"a lie: the work goes on until {record.over}"
    if v.s.ending is Ending.UNSTARTED and record.began < NEVER:
        yield f"a lie: the work began at {record.began}"
    if v.s.clean != (v.s.gone and not v.s.survivors):
        yield "clean is wrong"


def check_bound(v: View) -> Generator[str]:
    """Settled in the budget: not later, and not by giving up earlier."""
    at, within = v.s.settled_at, v.budget.kill_within
    if at > v.due + (within if v.reaps else 0.0) + EPS:
        yield f"settled at {at}, due at {v.due}"
    if v.called("start") is None:
        if not same(at, v.s.asked_at):
            yield f"nothing began, and it was settled at {at}"
    elif v.known is None and at < v.due - EPS:
        yield f"given up at {at}, due at {v.due}"
    elif isinstance(v.known, End) or v.lost_gone or (v.known and not v.revealed):
        ended = min(v.record.outcome_at, v.due)
        if at > ended + (within if v.reaps else 0.0) + EPS:
            yield f"it ended at {ended} and was settled at {at}"


def check_asking(v: View) -> Generator[str]:
    """A stop is an asking, at its time and in its name, unless the turn had failed or ended."""
    record, s = v.record, v.s
    before_end = record.stopped_step < record.outcome_step
    if before_end and (s.request is None or s.asked_at is None or s.asked_at > record.stopped):
        yield f"stopped at {record.stopped}, and it says {s.request} at {s.asked_at}"
    late = s.asked_at is not None and s.asked_at > v.closing + EPS
    if late and record.queued < v.closing:
        yield f"the rooms closed at {v.closing}"
    if s.request is None and (s.asked_at, s.asked_wall) != (None, None):
        yield "asked by nobody"
    if s.request is not None and record.outcome_at < (s.asked_at or 0.0) - EPS:
        yield "asked after its end"


def check_cancel(v: View) -> Generator[str]:
    """Told once, in the instant of the asking or of the reveal; kept until the end or the bound."""
    call, follow = v.called("cancel"), v.called("follow")
    known_at = v.record.outcome_at
    if follow is not None and v.since < NEVER and not v.lost_gone:
        due = max(v.since, follow.at)
        needed = known_at > due + EPS or (isinstance(v.known, Exception) and v.revealed)
        if needed and due < v.due - EPS and (call is None or not same(call.at, due)):
            yield f"cancel() was due at {due}: {call}"
    if call is None or follow is None:
        return
    if v.since == NEVER:
        yield "cancel(), and nobody asked"
    ends = v.lost_gone or not isinstance(v.record.outcome, Exception)
    until = min(v.phase2, known_at) if ends else v.phase2
    if call.cancelled < until - EPS:
        yield f"cancel() was given up at {call.cancelled}, before {until}"
    if not same(v.s.sent_at, v.record.sent) and v.record.sent < v.s.settled_at - EPS:
        yield f"sent at {v.record.sent}"
    back = call.back if call.result is None and v.script.acknowledges else None
    if v.s.acked_at is not None and not same(v.s.acked_at, back):
        yield f"acknowledged at {back}"


def check_kill(v: View) -> Generator[str]:
    """The forceful rung comes in phase 2, after cancel, and always when there is no end."""
    kill, cancel = v.called("kill"), v.called("cancel")
    if not v.revealed or v.script.kill is None or cancel is None:
        if kill is not None and v.revealed:
            yield "kill(), and no cancel() before"
        return
    had_its_turn = min(cancel.back, v.record.sent)
    due = v.phase2 if cancel.at < v.phase2 - EPS else max(v.phase2, had_its_turn)
    if isinstance(v.record.outcome, Exception):
        due = min(due, max(v.record.outcome_at, cancel.back))
    elif v.record.outcome_at <= due + EPS:
        due = NEVER
    if kill is not None and kill.at < min(due, v.phase2) - EPS:
        yield f"kill() at {kill.at}, due at {due}"
    ended = v.lost_gone and v.record.outcome_at <= due + EPS
    if kill is None and due < v.due - EPS and not ended:
        yield f"no kill(), which was due at {due}"
    if kill is not None and kill.cancelled < min(v.due, v.record.outcome_at) - EPS:
        yield f"kill() was given up at {kill.cancelled}"


def check_patience(v: View) -> Generator[str]:
    """start and follow are cancelled only once nothing more can come of them."""
    for name in ("start", "follow"):
        call = v.called(name)
        if call is not None and call.cancelled < min(v.due, v.s.settled_at) - EPS:
            yield f"{name}() was cancelled at {call.cancelled}, before {v.due}"
    if v.revealed is False and v.record.revealed < min(v.due, v.s.settled_at) - EPS:
        yield "revealed in time, and never followed"


def check_stragglers(v: View) -> Generator[str]:
    """What is alive at settlement is named; a start that returns late gets one of each."""
    for name, calls in v.record.calls.items():
        for call in calls:
            if call.at <= v.s.settled_at < call.back - EPS and (v.revealed or name == "start"):
                if not any(name in survivor for survivor in v.s.survivors):
                    yield f"{name}() lives until {call.back}, and is not named"
            elif call.at > v.s.settled_at + EPS and v.revealed:
                yield f"{name}() was called at {call.at}"
    if v.record.revealed < NEVER and not v.revealed:
        wanted = ["cancel"] if v.script.kill is None else ["cancel", "kill"]
        if [name for name in wanted if len(v.record.calls.get(name, ())) != 1]:
            yield f"revealed too late, and told {list(v.record.calls)}, not {wanted}"


def check_reader(v: View) -> Generator[str]:
    """Every event is heard or counted, and an error of the backend is raised once."""
    record, s = v.record, v.s
    heard = len(record.heard)
    counted = not record.merged and record.outcome_at <= s.settled_at
    if counted and heard + s.dropped != record.emitted:
        yield f"{heard} heard, {s.dropped} dropped, {record.emitted} emitted"
    stopped = min(record.stopped, v.closing) <= record.read_until
    left_alone = not (stopped or s.request or record.cancelled)
    if record.to_end and left_alone and heard != record.emitted:
        yield f"{heard} heard to the end, {record.emitted} emitted"
    due = record.outcome_at if s.request is None else s.settled_at
    if record.read_until > max(record.read_from, due) + EPS:
        yield f"its reader was left waiting until {record.read_until}"
    for asked, answered in record.silenced:
        if answered > max(asked, min(due, s.asked_at or NEVER)) + EPS:
            yield f"asked at {asked}, silenced at {answered}"
    if record.asks:
        yield f"{record.asks} asks wait for ever"
    unasked = s.request is None or s.request.kind == "backlog"
    for error in record.raised:
        if not unasked or error not in s.errors or len(record.raised) > 1:
            yield f"raised {record.raised}"
    fails = isinstance(v.known, Exception) or s.ending is Ending.FAILED
    if fails and unasked and not record.raised and not (record.boom or record.cancelled):
        yield "its error was raised nowhere"


def check_block(v: View) -> Generator[str]:
    """Its block leaves in the instant in which it is settled and its body has left."""
    record = v.record
    if record.body_left < NEVER:
        due = max(record.body_left, v.s.settled_at)
        if not same(record.left, due):
            yield f"its body left at {record.body_left}, its block at {record.left}"


CHECKS = (
    check_ending,
    check_evidence,
    check_leftovers,
    check_truth,
    check_bound,
    check_asking,
    check_cancel,
    check_kill,
    check_patience,
    check_stragglers,
    check_reader,
    check_block,
)
