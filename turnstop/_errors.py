"""Every error that turnstop raises on its own account, apart from plain misuse."""

from __future__ import annotations


class BackendError(Exception):
    """The backend failed the turn; the text says what happened and what to do next."""


class BackendRefused(BackendError):
    """The backend answered that it did not begin: there is nothing remote to stop."""


class BackendLost(BackendError):
    """The connection to the backend broke before the turn's end was seen.

    Attributes:
        gone: True where the work ended with the connection, as with a local process that
            exited. False where the work may go on unseen.
    """

    def __init__(self, *args: object, gone: bool = False) -> None:
        super().__init__(*args)
        self.gone = gone


class BackendMisbehaved(BackendError):
    """The backend broke its own protocol, or an adapter broke the contract of `turnstop.abc`."""


class RoomsClosed(RuntimeError):
    """The rooms are closing or closed: no turn may be entered any more."""


class Silenced(Exception):
    """Nobody will answer this `emit.ask`: its turn is stopped, or over.

    The adapter answers the backend's request with the protocol's word for "cancelled".
    """
