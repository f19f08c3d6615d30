"""The API key: a dependency of every path that tells something of the model."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
HEADER = APIKeyHeader(name="X-API-Key", scheme_name="header", auto_error=False)
Bearer = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
Header = Annotated[str | None, Security(HEADER)]
KeyCheck = Callable[[Request, HTTPAuthorizationCredentials | None, str | None], Awaitable[None]]


def key_check(key: str) -> KeyCheck:
    """A dependency that lets requests with this key through."""

    async def check_key(request: Request, bearer: Bearer, header: Header) -> None:
        given = (header or "", bearer.credentials if bearer else "")
        if any(secrets.compare_digest(one.encode("latin-1"), key.encode()) for one in given):
            return
        sent = {"authorization", "x-api-key"} & set(request.headers)
        what = "the key is wrong" if sent else "this server asks for a key"
        sentence = f"{what}; send Authorization: Bearer KEY, or X-API-Key: KEY"
        raise HTTPException(401, sentence, {"www-authenticate": "Bearer"})

    return check_key
