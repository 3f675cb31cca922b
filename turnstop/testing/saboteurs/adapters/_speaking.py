"""Adapters that mix up who hears what."""

from __future__ import annotations

import trio

from ....abc import Emit, End, Silenced
from ....events import Ask, Event, Text
from .._saboteur import in_adapter
from .._wrap import Ears, Turn


@in_adapter("stopped_approvals_are_answered")
class SilenceIsNoAnswer(Turn):
    """A question that nobody will answer any more is left open."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            try:
                return await emit.ask(question)
            except Silenced:
                await trio.sleep_forever()

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("stopped_approvals_are_answered")
class SilenceIsConsent(Turn):
    """A question that nobody will answer any more is answered by its first choice."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            try:
                return await emit.ask(question)
            except Silenced:
                return (*question.choices, "yes")[0]

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("answers_reach_the_work")
class EveryAnswerIsConsent(Turn):
    """Whatever a person answers, the far end is told the first choice."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            await emit.ask(question)
            return (*question.choices, "yes")[0]

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("answers_reach_the_work")
class AnswersAreChanged(Turn):
    """Whatever a person answers, the far end is told another choice."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            reply = await emit.ask(question)
            others = (*question.choices, "yes", "no")
            return next(choice for choice in others if choice != reply)

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("answers_reach_the_work")
class AnswersAreLost(Turn):
    """What a person answers does not reach the far end."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            await emit.ask(question)
            await trio.sleep_forever()

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("answers_reach_the_work")
class NobodyIsAsked(Turn):
    """A question of the far end is shown, and answered by the adapter itself."""

    async def listen(self, emit: Emit) -> End:
        async def ask(question: Ask) -> object:
            emit(question)
            return question.choices[0]

        end: End = await self.remote.follow(Ears(emit, ask))
        return end


@in_adapter("neighbours_are_untouched", needs=("say",))
class WordsAreHeardEverywhere(Turn):
    """What the far end says in one room is told in all of them."""

    async def listen(self, emit: Emit) -> End:
        everybody: list[Emit] = vars(self.home).setdefault("everybody", [])
        everybody.append(emit)

        def hear(event: Event) -> None:
            for one in everybody:
                one(event)

        end: End = await self.remote.follow(Ears(hear, emit.ask))
        return end


@in_adapter("every_word_is_heard", "nothing_is_heard_after_a_stop")
class WordsComeTwice(Turn):
    """What the far end says is told twice."""

    async def listen(self, emit: Emit) -> End:
        def hear(event: Event) -> None:
            emit(event)
            emit(event)

        end: End = await self.remote.follow(Ears(hear, emit.ask))
        return end


@in_adapter("every_word_is_heard")
class LastWordsAreLost(Turn):
    """What the far end says is told when it says the next thing, and the last never."""

    async def listen(self, emit: Emit) -> End:
        waiting: list[Event] = []

        def hear(event: Event) -> None:
            if not isinstance(event, Text):
                emit(event)
                return
            if waiting:
                emit(waiting.pop())
            waiting.append(event)

        end: End = await self.remote.follow(Ears(hear, emit.ask))
        return end


@in_adapter("late_words_stay_with_their_turn")
class LateWordsGoToTheNext(Turn):
    """What a stopped turn says late is told to the room's next one."""

    async def listen(self, emit: Emit) -> End:
        spilt: list[Event] = vars(self.home).setdefault("spilt", [])
        while spilt:
            emit(spilt.pop(0))

        def hear(event: Event) -> None:
            if self.told:
                spilt.append(event)
            else:
                emit(event)

        end: End = await self.remote.follow(Ears(hear, emit.ask))
        return end
