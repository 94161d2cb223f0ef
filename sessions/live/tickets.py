"""Tickets of the live socket. A page must present one first, so that a handshake with stolen cookies alone is useless.

A ticket is signed, bound to the browser's session, valid for 30 s and usable once. This process remembers used tickets,
and Redis remembers them for all processes. Without Redis, another process would accept a used ticket again, from the
same browser session, within its 30 s.
"""

import hashlib
import secrets
import threading
import time

from django.core import signing
from django.core.cache import cache
from redis.exceptions import RedisError

from sessions.hints import outage

LIFETIME_SECONDS = 30
_SALT = "sessions.live.ticket"
_used: dict[str, float] = {}
_guard = threading.Lock()


def issue(session_key: str) -> str:
    return signing.dumps([secrets.token_urlsafe(12), fingerprint(session_key)], salt=_SALT)


def redeem(ticket: str, session_key: str) -> bool:
    """True once per ticket. Waits for Redis up to 1 s, so never call it in a loop thread."""
    try:
        nonce, bound_to = signing.loads(ticket, salt=_SALT, max_age=LIFETIME_SECONDS)
    except (signing.BadSignature, ValueError, TypeError):
        return False
    return secrets.compare_digest(str(bound_to), fingerprint(session_key)) and _first_use(str(nonce))


def fingerprint(session_key: str) -> str:
    """Identifies a browser's session where its secret key must not appear."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]


def _first_use(nonce: str) -> bool:
    now = time.monotonic()
    with _guard:
        for old in [key for key, until in _used.items() if until < now]:
            del _used[old]
        if nonce in _used:
            return False
        _used[nonce] = now + LIFETIME_SECONDS
    try:
        return bool(cache.add(f"live-ticket:{nonce}", 1, LIFETIME_SECONDS))
    except (RedisError, OSError) as problem:
        outage.noticed(problem)
        return True
