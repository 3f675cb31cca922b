"""The ASGI application: the routes, the page, and what is said where something is refused."""

from __future__ import annotations

import importlib.resources
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._guard import Guard
from ._openapi import document
from ._routes import OPERATIONS, Front, path_of
from ._wire import Failure

__all__ = ["make_app"]

logger = logging.getLogger("turnstop.server")

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("app", "asks", "dom", "ending", "rooms", "wire")
    },
}


def make_app(front: Front, version: str, hosts: frozenset[str] | None) -> ASGIApp:
    """The application that answers for a front, asked by one of these names; None: by any."""
    made = msgspec.json.encode(document(OPERATIONS, version))

    async def openapi(request: Request) -> Response:
        return Response(made, media_type="application/json")

    routes = [
        Route(one.path, partial(one.answer, front), methods=[one.method], name=one.name)
        for one in OPERATIONS
    ]
    routes += [Route("/openapi.json", openapi)]
    routes += [Route(path, _file(*found)) for path, found in _PAGE.items()]
    open_paths = {"/openapi.json", *_PAGE, *(one.path for one in OPERATIONS if one.is_open)}
    router = Router(routes, redirect_slashes=False)
    guard = Guard(router, front.desk.settings, frozenset(open_paths), hosts)
    return _outermost(ExceptionMiddleware(_safely(guard), {HTTPException: _refuse}))


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    data = importlib.resources.files(__package__).joinpath("page", name).read_bytes()

    async def page(request: Request) -> Response:
        return Response(data, media_type=kind)

    return page


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = msgspec.json.encode(Failure(error.detail))
    return Response(body, error.status_code, error.headers, media_type="application/json")


def _outermost(app: ASGIApp) -> ASGIApp:
    async def outermost(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] == "http":
            # Starlette refuses in plain text where it knows of no application.
            scope = {**scope, "path": path_of(scope), "app": app}
        await app(scope, receive, send_more)

    return outermost


def _safely(app: ASGIApp) -> ASGIApp:
    async def safe(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except HTTPException:
            raise
        except Exception as error:
            # Not its text, nor its traceback: what somebody has posted may be in them.
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            line = "?" if frame is None else f"{frame.tb_frame.f_code.co_name}:{frame.tb_lineno}"
            logger.error("a request failed: %s in %s", type(error).__name__, line)
            raise HTTPException(500, f"the server is at fault: {type(error).__name__}") from None

    return safe
