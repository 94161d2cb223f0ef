"""How long, and for which identities, a modern server's answer may be reused.

Source: 2026-07-28 *Utilities / Caching* (`ttlMs`, `cacheScope` on discover, the four lists and resources/read).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

#: upper bound, whatever the server says
LONGEST_TTL_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Hints:
    """`ttl_ms`: 0 means do not reuse. `scope`: "private" to the current authorization, or "public"."""

    ttl_ms: int
    scope: Literal["public", "private"]

    def within(self, other: "Hints | None") -> "Hints":
        """The stricter combination: the shorter lifetime and the narrower scope."""
        if other is None:
            return self
        both_public = self.scope == other.scope == "public"
        return Hints(min(self.ttl_ms, other.ttl_ms), "public" if both_public else "private")


def hints_of(result: Mapping[str, Any]) -> Hints:
    """The hints in a result. Missing or invalid values count as the strictest."""
    ttl = result.get("ttlMs")
    sound = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0
    scope: Literal["public", "private"] = "public" if result.get("cacheScope") == "public" else "private"
    return Hints(min(ttl, LONGEST_TTL_MS) if sound and isinstance(ttl, int) else 0, scope)
