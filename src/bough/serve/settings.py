"""How a server runs, as its user has chosen it; what cannot work is said before anything starts."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from bough.errors import UserError, shorten

LOCAL = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = {"0.0.0.0", "::"}  # among the hosts: whatever is written in numbers


@dataclass(frozen=True)
class Limits:
    """What one client may ask for, and what all together."""

    body: int = 4 * 2**20  # bytes
    texts: int = 256  # in a request
    characters: int = 20_000  # in a text
    queue: int = 1024  # texts that may wait
    timeout: float = 30.0  # seconds from a request's head to its answer

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:  # nor nan
                raise UserError(f"the limit of {name} is {value}; expected a number above 0")
        if self.queue < self.texts:
            raise UserError(
                f"a queue of {self.queue} texts cannot hold one request of {self.texts}; "
                "make the queue longer or allow fewer texts"
            )


@dataclass(frozen=True)
class Settings:
    limits: Limits = field(default_factory=Limits)
    workers: int = 1  # processes that answer
    threads: int = 1  # passes at a time, of each
    tokens: int = 1024  # of one pass, about
    key: str | None = None
    origins: tuple[str, ...] = ()  # of other sites' pages that may ask
    hosts: tuple[str, ...] = LOCAL  # names that the server is asked by; * is any
    per_client: int | None = None  # requests of one address under way
    show_examples: bool | None = None  # the model's, which are dev rows; None: on loopback only

    def __post_init__(self) -> None:
        if self.key is not None and not re.fullmatch("[!-~]([ -~]*[!-~])?", self.key):
            raise UserError(
                "the API key is empty or has characters that a header cannot carry; "
                "use letters, digits and signs of ASCII"
            )
        for origin in self.origins:
            _check_origin(origin)
        for host in self.hosts:
            if not re.fullmatch(r"\*|[a-z0-9._-]+", host) and not is_address(host):
                example = "my.site, without http:// and port"
                raise UserError(f"--host-name {shorten(host)} is no host's name; write {example}")


def _check_origin(origin: str) -> None:
    """A browser names its page's site in one form only; another would never match."""
    if origin == "*":
        return
    example = "https://my.site"
    with contextlib.suppress(ValueError):  # no address, or no port
        parts = urlsplit(origin)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        port = "" if parts.port in (None, usual) else f":{parts.port}"
        if parts.scheme and host and host.isascii():
            example = f"{parts.scheme}://{host}{port}"
            if origin == example:
                return
    raise UserError(
        f"--cors {shorten(origin)} is no site as browsers name it; write {example} or *"
    )


def is_address(host: str) -> bool:
    """Whether a host is written in numbers."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
