"""Around every request: the count, the headers that keep a browser safe, and the key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Collection

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bough.serve.metrics import Meters

log = logging.getLogger(__name__)


class Gate:
    """The outermost layer; what fails inside it becomes a 500 with a sentence."""

    def __init__(self, app: ASGIApp, meters: Meters, paths: Collection[str], policy: str):
        self.app = app
        self.meters = meters
        self.paths = paths
        self.headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        method, path, status = scope["method"], scope["path"], 0
        if method == "HEAD":  # as GET; the body is left out where it would be sent
            scope = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self.headers]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception:
            log.exception("%s %s failed", method, path)
            if status:  # too late to say anything else
                raise
            await _failed(scope, receive, sending)
        finally:
            # A path that leads nowhere is counted under one name: anyone can make up such paths.
            known = path if path in self.paths else "none"
            self.meters.answered(method, known, status, time.perf_counter() - began)


async def _failed(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = "the server failed; its log says more"
    await JSONResponse({"error": sentence}, 500)(scope, receive, send)


class Key:
    """The innermost layer, so that a browser's question before it asks needs no key."""

    def __init__(self, app: ASGIApp, key: str, open_paths: Collection[str]):
        self.app = app
        self.key = key.encode()
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        free = scope["type"] != "http" or scope["path"] in self.open_paths
        let_in = free or self._is_given(scope)
        await (self.app if let_in else _unknown)(scope, receive, send)

    def _is_given(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        bearer = token.strip() if scheme.lower() == b"bearer" else b""
        given = (headers.get(b"x-api-key", b""), bearer)
        return any(hmac.compare_digest(one, self.key) for one in given)


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    given = {b"authorization", b"x-api-key"} & {name for name, _ in scope["headers"]}
    what = "the key is wrong" if given else "this server asks for a key"
    sentence = f"{what}; send Authorization: Bearer KEY, or X-API-Key: KEY"
    response = JSONResponse({"error": sentence}, 401, {"www-authenticate": "Bearer"})
    await response(scope, receive, send)


def policy(drawing: str) -> str:
    """Nothing from outside, and no code or style inside the page but the drawing's own style."""
    styles = re.findall(r"<style>(.*?)</style>", drawing, re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' {allowed}; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
