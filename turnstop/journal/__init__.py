"""Turns on the disk, so that the next process ends what the one before has left.

    async with open_journal("turns.db") as journal, open_a2a(url) as agent:
        async with turnstop.open_rooms(agent, journal=journal) as rooms:
            ...

When the process dies in the middle of a turn, the agent works on. The next one that opens rooms
with this journal finds the turn, takes it up where it is, and stops it, as any turn is stopped; its
room lets the next turn in when that is settled. Several processes may share a file.

**What a stop waits for.** Never for the disk. Nor does a turn that begins, except that an adapter
which knows where its turn will be has that written before it is sent: it waits half a second at
most, and no longer than until the turn is stopped.

**A disk that is full or broken** takes no turn's end away: there is one warning, what could not be
written is kept and tried again, up to 10,000 notes, and `Journal.statistics` counts what is lost.
So is a file that is moved or removed while it is open, and a disk that does not answer for some
ten seconds.
"""

from __future__ import annotations

from ._journal import Journal, JournalStatistics, open_journal

__all__ = ["Journal", "JournalStatistics", "open_journal"]
