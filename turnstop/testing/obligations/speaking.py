"""Obligations of what is heard: one's own turn, all of it, in order, until a stop."""

from __future__ import annotations

from collections.abc import Callable, Sized

import trio

from ..._ending import Ending
from .._obligation import obligation
from .._stage import Actor, Stage, read


@obligation("say", "finish")
async def every_word_is_heard(stage: Stage) -> None:
    """A reader that comes late gets every word, once and in order, and then the end."""

    async def late(actor: Actor) -> None:
        await stage.until(lambda: actor.turn.settlement, "a finished turn is settled")
        await read(actor)

    async with stage.open():
        actor, work = await stage.begin(body=late)
        for word in ("one ", "two ", "three "):
            await stage.probe.say(work, word)
        await stage.quiet()
        await stage.probe.finish(work)
        settlement = await stage.left(actor)
        stage.expect(settlement.ending is Ending.FINISHED, f"it is {settlement.ending.value}")
        heard = "".join(actor.heard)
        stage.expect(heard == "one two three ", f"it was heard as {heard!r}")
        stage.expect(settlement.gone and not work.told_at, "a finished turn was told to stop")


@obligation("ask")
async def answers_reach_the_work(stage: Stage) -> None:
    """What a person answers to a question of the work reaches it, and the turn goes on."""
    async with stage.open():
        actor, work = await stage.begin()
        # The first choice and another one: an adapter may know only one answer.
        for number in (0, 1):
            await stage.probe.ask(work)
            await stage.until(_more_than(number, actor.asks), "the question is read")
            await stage.quiet()
            stage.expect(len(work.replies) == number, "it was answered, and nobody was asked")
            question = actor.asks[number]
            reply = (*question.choices, "yes", "no")[number]
            stage.expect(actor.turn.answer(question, reply), "nobody waits for the answer")
            await stage.until(_more_than(number, work.replies), "the answer reaches the work")
            told = work.replies[number]
            stage.expect(
                stage.probe.carries(told, reply), f"the reply is {reply!r}, and {told!r} was told"
            )
        stage.expect(actor.turn.settlement is None, "the answer has ended the turn")


def _more_than(number: int, found: Sized) -> Callable[[], bool]:
    return lambda: len(found) > number


@obligation("say")
async def nothing_is_heard_after_a_stop(stage: Stage) -> None:
    """What the work says after the stop is heard by nobody, while it is followed to its end."""

    async def wait(actor: Actor) -> None:
        await trio.sleep_forever()

    async with stage.open():
        actor, work = await stage.begin(body=wait)
        stage.aside(lambda: read(actor))
        await stage.probe.say(work, "before")
        await stage.until(lambda: actor.heard, "the work is heard")
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        actor.turn.stop()
        await stage.until(lambda: work.told_at or actor.turn.settlement, "the far end is told")
        if work.runs:
            await stage.probe.say(work, "after")
        await stage.left(actor)
        await stage.quiet()
        stage.expect(actor.heard == ["before"], f"it was heard as {actor.heard}")


@obligation("say", "finish")
async def late_words_stay_with_their_turn(stage: Stage) -> None:
    """What a stopped turn says late, before its end or after it, is never heard in the next."""
    async with stage.open():
        first, work = await stage.begin()
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        first.turn.stop()
        await stage.until(lambda: work.told_at or first.turn.settlement, "the far end is told")
        if work.runs:
            await stage.probe.say(work, "late ")
        await stage.left(first)
        second, its = await stage.begin(text="second")
        await stage.probe.say(work, "later ")
        await stage.probe.say(its, "own")
        await stage.quiet()
        await stage.probe.finish(its)
        settlement = await stage.left(second)
        heard = "".join(second.heard)
        stage.expect(heard == "own", f"the next turn was heard as {heard!r}")
        stage.expect(
            settlement.ending is Ending.FINISHED, f"the next turn is {settlement.ending.value}"
        )


@obligation("say", "finish", "session")
async def room_goes_on_after_a_stop(stage: Stage) -> None:
    """After a stop the room's next turn answers, in the same conversation."""
    async with stage.open():
        first, work = await stage.begin()
        first.turn.stop()
        settlement = await stage.left(first)
        second, its = await stage.begin(text="second")
        await stage.probe.say(its, "here I am")
        await stage.quiet()
        await stage.probe.finish(its)
        later = await stage.left(second)
        stage.expect(
            later.ending is Ending.FINISHED and "".join(second.heard) == "here I am",
            f"it is {later.ending.value}, and was heard as {second.heard}",
        )
        stage.expect(its.session is not None, "the far end knows no conversations")
        stage.expect(
            not settlement.gone or its.session == work.session,
            f"the next turn went on in {its.session}, and not in {work.session}",
        )
        _, last = await stage.begin(text="third")
        stage.expect(
            last.session == its.session,
            f"the turn after a finished one went on in {last.session}, and not in {its.session}",
        )


@obligation("say_end_again", "finish")
async def repeated_end_ends_nothing_else(stage: Stage) -> None:
    """The end of a stopped turn that is told again does not end the next one."""
    async with stage.open():
        first, work = await stage.begin()
        first.turn.stop()
        await stage.left(first)
        stage.expect(work.ended_at is not None, "the work did not end")
        second, its = await stage.begin(text="second")
        await stage.probe.say_end_again(work)
        await stage.quiet()
        stage.expect(second.turn.settlement is None, "the next turn was ended by it")
        await stage.probe.finish(its)
        settlement = await stage.left(second)
        stage.expect(
            settlement.ending is Ending.FINISHED, f"the next turn is {settlement.ending.value}"
        )
