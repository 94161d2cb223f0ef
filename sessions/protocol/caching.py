"""How long a modern server's answer may be used again, and by whom.

Source: 2026-07-28 *Utilities / Caching* (`ttlMs`, `cacheScope` on discover, the four lists and resources/read).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

#: nothing is used for longer, whatever the server says
LONGEST_TTL_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Hints:
    """`ttl_ms` from 0 (do not use it again); `scope`: "private" to whoever is authorized now, or "public"."""

    ttl_ms: int
    scope: Literal["public", "private"]

    def within(self, other: "Hints | None") -> "Hints":
        """What holds for both: the shorter life and the narrower scope."""
        if other is None:
            return self
        both_public = self.scope == other.scope == "public"
        return Hints(min(self.ttl_ms, other.ttl_ms), "public" if both_public else "private")


def hints_of(result: Mapping[str, Any]) -> Hints:
    """What a result says; anything missing or senseless is read as the strictest."""
    ttl = result.get("ttlMs")
    sound = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0
    scope: Literal["public", "private"] = "public" if result.get("cacheScope") == "public" else "private"
    return Hints(min(ttl, LONGEST_TTL_MS) if sound and isinstance(ttl, int) else 0, scope)
