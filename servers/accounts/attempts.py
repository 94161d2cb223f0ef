"""How often one address may use what does not require a sign-in: counted in the cache, for all web processes."""

from enum import Enum

import structlog
from django.core.cache import cache
from redis.exceptions import RedisError

from servers import limits
from servers.requests import counted_address

log = structlog.get_logger("mcpadmin.attempts")

ATTEMPTS_SECONDS = 600


class Refusal(Enum):
    LIMITED = "limited"
    UNCOUNTED = "uncounted"  # Redis is unavailable: while nothing can be counted, no one gets in


def count(what: str, ip: str, limit: str | int = "setup_attempts") -> Refusal | None:
    """Counts one attempt. `what` names its kind; `limit`, a name or a number, holds for ten minutes."""
    key = f"{what}:{counted_address(ip)}"
    try:
        cache.add(key, 0, ATTEMPTS_SECONDS)
        try:
            counted = cache.incr(key)
        except ValueError:
            return None  # the key expired between the two commands: a new period begins
    except RedisError as problem:
        log.warning("attempts cannot be counted", what=what, problem=type(problem).__name__)
        return Refusal.UNCOUNTED
    return Refusal.LIMITED if counted > (limit if isinstance(limit, int) else limits.number(limit)) else None
