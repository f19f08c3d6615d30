"""Around every request: the count, and the headers that keep a browser safe."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import time
from collections.abc import Collection

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bough.serve.prometheus import Metrics

log = logging.getLogger(__name__)


class MetricsMiddleware:
    """The outermost layer: counts what is asked; a failure inside becomes a 500 with a sentence."""

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
        except Exception:
            log.exception("%s %s failed", method, path)
            if status:  # too late to say anything else
                raise
            failure = JSONResponse({"error": "the server failed; its log says more"}, 500)
            await failure(scope, receive, send_with_headers)
        finally:
            # A path that leads nowhere is counted under one name: anyone can make up such paths.
            known = path if path in self.paths else "none"
            self.metrics.record_request(method, known, status, time.perf_counter() - began)


def security_policy(drawing: str) -> str:
    """Nothing from outside, and no code or style inside the page but the drawing's own style."""
    styles = re.findall(r"<style>(.*?)</style>", drawing, re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' {allowed}; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
