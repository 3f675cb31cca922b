"""What an obligation cannot see over a far end, and why: each survivor is explained."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNSEEN", "Unseen"]

Unseen = Mapping[tuple[str, str], str]
"""An obligation and a saboteur, and why the one cannot see the other."""

_HEALS = "the adapter connects again and goes on with the task: nothing is lost"

_LOST = ("LossIsCompletion", "LossIsTheEnd", "an_exception_is_an_end", "what_is_lost_is_gone")
_HEALED: Unseen = {("lost_connection_is_no_end", name): _HEALS for name in _LOST}
_CLAIMED = "its stops are unconfirmed at once: nobody has to wait, nor hears what comes later"
_WAITS: Unseen = {
    ("next_turn_waits", "leaving_does_not_wait"): _CLAIMED,
    ("next_turn_waits", "a_stop_opens_the_room"): _CLAIMED,
    ("leaving_waits", "leaving_does_not_wait"): _CLAIMED,
    ("error_in_the_body_is_a_stop", "leaving_does_not_wait"): _CLAIMED,
}
_READERLESS = "its stops are unconfirmed, with somebody who reads on or without"
_UNREAD: Unseen = {
    ("teardown_waits", "ReaderIsNoService"): _READERLESS,
    ("teardown_waits", "an_outer_cancel_ends_the_follow"): _READERLESS,
}
_FLAG = "a thread is told by a flag, which nothing answers"
_MUTE = "a thread that is stopped can say nothing any more"
_NOTIFIED = "a cancel is a notification, which nothing answers"
_NOTIFICATION: Unseen = {
    ("hung_cancel_is_bounded", "CancelReturnsAtOnce"): _NOTIFIED,
    ("end_needs_no_acknowledgement", "EndWaitsForTheAcknowledgement"): _NOTIFIED,
    ("end_needs_no_acknowledgement", "an_end_waits_for_the_acknowledgement"): _NOTIFIED,
    ("settlement_has_its_times", "SentIsSaidAtTheAnswer"): _NOTIFIED,
    ("settlement_has_its_times", "the_answer_is_the_sending"): _NOTIFIED,
    ("rooms_do_not_wait_for_each_other", "CancelsTakeTurns"): _NOTIFIED,
    ("rooms_do_not_wait_for_each_other", "stops_take_turns"): _NOTIFIED,
}

_UNKNOWN = "what a function goes on with is known when it has ended"
_SHARED = ("neighbours_are_untouched", "SessionIsShared")

_LOOKS = "the adapter listens again and asks the server how things stand: no turn is lost"
_ASKED: Unseen = {
    ("death_is_noticed", "LossIsCompletion"): _LOOKS,
    ("death_is_noticed", "LossIsNotNoticed"): _LOOKS,
    ("death_ends_a_stop", "LossIsCompletion"): _LOOKS,
    ("death_ends_a_stop", "an_error_after_a_stop_is_raised"): _LOOKS,
    ("garbage_ends_no_stop", "GarbageIsCompletion"): _LOOKS,
    ("garbage_ends_no_stop", "an_error_after_a_stop_is_raised"): _LOOKS,
    ("garbage_is_bounded", "a_failed_turn_keeps_its_room"): _LOOKS,
    ("garbage_is_bounded", "StartsEndWithALoss"): _LOOKS,
    ("rooms_go_on_after_a_death", "StartsEndWithALoss"): _LOOKS,
    **{("lost_connection_is_no_end", name): _LOOKS for name in _LOST},
}

_NEAR = "the server ends its engine's tasks, whose end is seen: a stopped turn loses nothing"
_IN_PROCESS: Unseen = {
    ("hung_cancel_is_bounded", "CancelReturnsAtOnce"): _NOTIFIED,
    ("rooms_do_not_wait_for_each_other", "CancelsTakeTurns"): _NOTIFIED,
    ("rooms_do_not_wait_for_each_other", "stops_take_turns"): _NOTIFIED,
    ("death_ends_a_stop", "LossIsCompletion"): _NEAR,
    ("death_ends_a_stop", "an_error_after_a_stop_is_raised"): _NEAR,
}

_DENIED = "once a stop was asked for, the adapter denies whatever is open, whoever has answered it"
_DENIES: Unseen = {
    ("stopped_approvals_are_answered", "SilenceIsConsent"): _DENIED,
    ("stopped_approvals_are_answered", "silence_is_consent"): _DENIED,
}

_CALLED = "a function is called when its turn is followed: nothing leaves before its start is over"
_PROMPTED = "a prompt is written when its turn is followed: nothing leaves before its start is over"
_FOLLOWED = ("what_begins_is_announced", "AnnouncedWhenItHasBegun")

UNSEEN: Mapping[str, Unseen] = {
    "local": {_SHARED: _UNKNOWN, _FOLLOWED: _CALLED},
    "local-thread": {
        _FOLLOWED: _CALLED,
        _SHARED: _UNKNOWN,
        ("rooms_do_not_wait_for_each_other", "CancelsTakeTurns"): _FLAG,
        ("rooms_do_not_wait_for_each_other", "stops_take_turns"): _FLAG,
        ("hung_cancel_is_bounded", "CancelReturnsAtOnce"): _FLAG,
        ("nothing_is_heard_after_a_stop", "a_stop_leaves_the_gate_open"): _MUTE,
        ("late_words_stay_with_their_turn", "LateWordsGoToTheNext"): _MUTE,
        ("late_words_stay_with_their_turn", "late_words_are_kept_for_the_next"): _MUTE,
    },
    "acp": {**_NOTIFICATION, _FOLLOWED: _PROMPTED},
    "acp-shared": {**_NOTIFICATION, _FOLLOWED: _PROMPTED},
    **{f"acp-{name}": {_FOLLOWED: _PROMPTED} for name in ("claude", "codex", "copilot", "qwen")},
    "a2a": _HEALED,
    "a2a-polling": {
        **_HEALED,
        **_WAITS,
        **_UNREAD,
        ("unconfirmed_is_final", "a_late_end_rewrites_the_ending"): _CLAIMED,
        ("nothing_is_heard_after_a_stop", "a_stop_leaves_the_gate_open"): _CLAIMED,
        ("late_words_stay_with_their_turn", "LateWordsGoToTheNext"): _CLAIMED,
        ("late_words_stay_with_their_turn", "late_words_are_kept_for_the_next"): _CLAIMED,
    },
    "a2a-plain": {**_HEALED, **_WAITS, **_UNREAD},
    "letta": _DENIES,
    "letta-agent": _DENIES,
    "opencode": _ASKED,
    "parlant": _IN_PROCESS,
}
"""Over turnstop's own probes, by their names."""
