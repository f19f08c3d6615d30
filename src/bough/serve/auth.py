"""The API key: a dependency of every path that tells something of the model."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from fastapi import HTTPException, Request
from fastapi.security import APIKeyHeader, HTTPBearer

BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
HEADER = APIKeyHeader(name="X-API-Key", scheme_name="header", auto_error=False)
KeyCheck = Callable[[Request], Awaitable[None]]


def key_check(key: str) -> KeyCheck:
    """Lets requests with this key through."""

    async def check_key(request: Request) -> None:
        bearer, header = await BEARER(request), await HEADER(request)
        given = (header or "", bearer.credentials if bearer else "")
        if not any(secrets.compare_digest(one.encode("latin-1"), key.encode()) for one in given):
            sent = {"authorization", "x-api-key"} & set(request.headers)
            what = "the key is wrong" if sent else "this server asks for a key"
            sentence = f"{what}; send Authorization: Bearer KEY, or X-API-Key: KEY"
            raise HTTPException(401, sentence, {"www-authenticate": "Bearer"})

    return check_key
