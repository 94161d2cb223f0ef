"""Tickets of the live socket: what a page shows first, so that a handshake with stolen cookies alone is worth nothing.

A ticket is signed, bound to the browser's session, valid for 30 s and good for one use. Used ones are remembered in
this process and, where Redis answers, for all processes: without Redis another process of ours would take a ticket
again, from the same browser session, within its 30 s.
"""

import hashlib
import secrets
import threading
import time

import structlog
from django.core import signing
from django.core.cache import cache
from redis.exceptions import RedisError

LIFETIME_SECONDS = 30
_SALT = "sessions.live.ticket"
_used: dict[str, float] = {}
_guard = threading.Lock()
log = structlog.get_logger(__name__)


def issue(session_key: str) -> str:
    return signing.dumps([secrets.token_urlsafe(12), fingerprint(session_key)], salt=_SALT)


def redeem(ticket: str, session_key: str) -> bool:
    """True once. Waits for Redis up to 1 s: never in a loop thread."""
    try:
        nonce, bound_to = signing.loads(ticket, salt=_SALT, max_age=LIFETIME_SECONDS)
    except (signing.BadSignature, ValueError, TypeError):
        return False
    return secrets.compare_digest(str(bound_to), fingerprint(session_key)) and _first_use(str(nonce))


def fingerprint(session_key: str) -> str:
    """Names a browser's session where its key, which is a secret, must not appear."""
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
        log.warning("live.ticket_checked_in_this_process_only", problem=type(problem).__name__)
        return True
