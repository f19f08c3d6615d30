"""Around every request: the count, the headers that keep a browser safe, and who may ask."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Collection
from urllib.parse import quote

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bough.serve.prometheus import Metrics
from bough.serve.schemas import SHOWN
from bough.serve.settings import ANY_ADDRESS, is_address

log = logging.getLogger(__name__)


class MetricsMiddleware:
    """The outermost layer: counts what is asked, and adds the headers that keep a browser safe."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str], policy: str):
        self.app = app
        self.metrics = metrics
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

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self.headers]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            # A path that leads nowhere is counted under one name: anyone can make up such paths.
            known = path if path in self.paths else "none"
            self.metrics.record_request(method, known, status, time.perf_counter() - began)


class Failures:
    """A failure inside becomes a 500 with a sentence, and a place in the log."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noticed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noticed)
        except Exception:
            if scope["type"] != "http":
                raise
            name = secrets.token_hex(4)
            # Escaped again: a line's end in a path would begin a line that nobody has logged.
            path = quote(scope["path"], errors="replace")
            log.exception("%s %s failed (%s)", scope["method"], path, name)
            if begun:  # too late to say anything else
                raise
            sentence = f"the server failed; its log says more, under {name}"
            await JSONResponse({"error": sentence}, 500)(scope, receive, send)


class Gate:
    """Turns away requests to other hosts' names, and those beyond a client's share.

    A page of a foreign site may have its own name lead here (DNS rebinding); its browser would then
    let it read the answers. The name that it asks for gives it away.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], per_client: int | None):
        """`*` among the hosts is any, one of ANY_ADDRESS any that is written in numbers."""
        self.app = app
        self.hosts = set(hosts)
        self.per_client = per_client
        self.under_way: Counter[str] = Counter()  # requests by the client's address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not self._ours(host):
            sentence = f"{host[:SHOWN]!r} is no name of this server; it is told with --host-name"
            await JSONResponse({"error": sentence}, 421)(scope, receive, send)
            return
        client = (scope.get("client") or ("",))[0]
        if self.per_client and self.under_way[client] >= self.per_client:
            sentence = f"{self.per_client} requests of your address are under way; try again later"
            await JSONResponse({"error": sentence}, 429, {"retry-after": "1"})(scope, receive, send)
            return
        self.under_way[client] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.under_way[client] -= 1
            if not self.under_way[client]:
                del self.under_way[client]

    def _ours(self, host: str) -> bool:
        if "*" in self.hosts or not host:  # a browser always names one
            return True
        parts = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?", host)
        name = (parts[1] or parts[2] or "").lower().removesuffix(".") if parts else ""
        return name in self.hosts or (bool(ANY_ADDRESS & self.hosts) and is_address(name))


def security_policy(drawing: str) -> str:
    """Nothing from outside, and no code or style inside the page but the drawing's own style."""
    styles = re.findall(r"<style>(.*?)</style>", drawing, re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' {allowed}; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
