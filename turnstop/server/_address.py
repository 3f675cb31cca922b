"""Where a server listens, and by which names it may be asked."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from ._settings import Settings

__all__ = ["Address", "listening"]

_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
_TRIES: Final = 10


@attrs.frozen
class Address:
    """What is listened on.

    Attributes:
        url: without a slash at its end.
        listeners: nothing is accepted yet.
        hosts: the names that requests may ask for; None: any.
    """

    url: str
    listeners: Sequence[trio.SocketListener] = attrs.field(repr=False)
    hosts: frozenset[str] | None


@asynccontextmanager
async def listening(settings: Settings) -> AsyncGenerator[Address, None]:
    """Listen, on each address that the host has, all with one port.

    Raises:
        OSError: an address is taken, or is none.

    **Cancellation:** nothing is left open.
    """
    host, port = settings.host, settings.port
    try:
        listeners = await _listen(host, port)
    except OSError as error:
        text = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        raise OSError(error.errno, text) from error
    addresses = [one.socket.getsockname()[0] for one in listeners]
    port = listeners[0].socket.getsockname()[1]
    name = _in_url(settings.host if len(listeners) > 1 else addresses[0])
    hosts = None
    if settings.hosts or all(ipaddress.ip_address(one).is_loopback for one in addresses):
        named = (*settings.hosts, settings.host, *addresses)
        hosts = frozenset([*_LOCAL, *(_in_url(one).lower() for one in named)])
    try:
        yield Address(f"http://{name}:{port}", listeners, hosts)
    finally:
        _close(listeners)


async def _listen(host: str, port: int) -> list[trio.SocketListener]:
    for _ in range(_TRIES):
        found = await trio.open_tcp_listeners(port, host=host)
        # Each address gets a free port of its own, and only one can be told.
        first, *others = found
        if port or not others:
            return found
        addresses = [one.socket.getsockname()[0] for one in others]
        _close(others)
        same, found = first.socket.getsockname()[1], [first]
        try:
            for address in addresses:
                found += await trio.open_tcp_listeners(same, host=address)
        except OSError:
            _close(found)
        except BaseException:
            _close(found)
            raise
        else:
            return found
    raise OSError(f"no port is free on each address of {host}")


def _close(listeners: Sequence[trio.SocketListener]) -> None:
    for one in listeners:
        one.socket.close()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
