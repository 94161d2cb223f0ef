"""Icons of servers and tools (MCP 2025-11-25, *Icons*): which one is used, how it is stored, where pages find it.

Pages never load the server's URL: a worker fetches the image (host/catalog/icons.py) and stores it in a row.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.urls import reverse
from django.utils import timezone

from servers.enums import DefinitionKind
from servers.media_types import format_of
from servers.models import Definition, Icon, Server
from sessions.connections.lifecycle import Lease, held

ICON_BYTES: Final = 128 * 1024
#: per session; further icons are not fetched
MOST: Final = 64
KEPT = timedelta(days=1)
#: until a failed one is tried again
RETRIED = timedelta(hours=6)
#: removed this long after it expired
FORGOTTEN = timedelta(days=7)
_SOURCE_CHARS = ICON_BYTES * 2
_BEST_SIZE = 48
_DATA = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,([A-Za-z0-9+/=]+)")
_CACHED = "_icons_kept"


@dataclass(frozen=True)
class Fetched:
    """The response of an address. `problem` says why there is no image."""

    data: bytes = b""
    problem: str = ""


# --- which one -------------------------------------------------------------------------------------------------------
def source(named: Any) -> str:
    """The URL of the best-fitting icon in the value of `icons`; "" if none can be shown."""
    usable = [icon for icon in (named[:20] if isinstance(named, list) else []) if _usable(icon)]
    return min(usable, key=_unfitness)["src"] if usable else ""


def _usable(icon: Any) -> bool:
    """SVG is not accepted: it may contain scripts and references to other sites."""
    if not isinstance(icon, dict) or not isinstance(icon.get("src"), str) or len(icon["src"]) > _SOURCE_CHARS:
        return False
    svg = "svg" in str(icon.get("mimeType", "")).lower() or icon["src"].lower().endswith(".svg")
    return not svg and bool(icon["src"].startswith("https://") or _DATA.fullmatch(icon["src"]))


def _unfitness(icon: dict[str, Any]) -> tuple[bool, int]:
    """A sort key: large enough icons first, then those closest to _BEST_SIZE."""
    sizes = icon.get("sizes")
    words = " ".join(str(size) for size in sizes[:10]) if isinstance(sizes, list) else str(sizes or "")
    numbers = [int(number) for number in re.findall(r"(\d{1,5})x\d", words[:200])]
    size = max(numbers, default=_BEST_SIZE + 16)
    return size < _BEST_SIZE, abs(size - _BEST_SIZE)


def digest(src: str) -> str:
    return hashlib.sha256(src.encode("utf-8", "surrogatepass")).hexdigest()


# --- what a worker does --------------------------------------------------------------------------------------------------
def due(lease: Lease) -> list[str]:
    """Sources that the session's server declares and that have no unexpired row."""
    session = held(lease).first()
    if session is None:
        return []
    bodies = Definition.objects.filter(identity=lease.identity_id, kind=DefinitionKind.TOOL, removed_at=None)
    with_icons = bodies.filter(body__contains='"icons"').order_by("position").values_list("body", flat=True)
    named = [session.server_info.get("icons"), *(json.loads(body).get("icons") for body in with_icons[: MOST * 2])]
    sources = list(dict.fromkeys(src for src in map(source, named) if src))[:MOST]
    good = Icon.objects.filter(server=lease.server_id, digest__in=map(digest, sources), expires_at__gt=timezone.now())
    fresh = set(good.values_list("digest", flat=True))
    return [src for src in sources if digest(src) not in fresh]


def inline(src: str) -> Fetched | None:
    """The image inside a data: URI; None for an https URL."""
    found = _DATA.fullmatch(src)
    if found is None:
        return None
    try:
        return Fetched(base64.b64decode(found[1], validate=True))
    except (binascii.Error, ValueError):
        return Fetched(problem="Its data is not base64.")


def store(lease: Lease, found: dict[str, Fetched]) -> None:
    """Store the images by source, if the session is still ours."""
    now = timezone.now()
    if not held(lease).exists():
        return
    for src, fetched in found.items():
        Icon.objects.update_or_create(server_id=lease.server_id, digest=digest(src), defaults=_row(fetched, now))
    Icon.objects.filter(server=lease.server_id, expires_at__lt=now - FORGOTTEN).delete()


def _row(fetched: Fetched, now: datetime) -> dict[str, Any]:
    mime = _mime(fetched.data)
    problem = fetched.problem or ("" if mime else "It is not a PNG, JPEG, WebP, GIF or AVIF picture.")
    if len(fetched.data) > ICON_BYTES:
        problem = f"It is larger than {ICON_BYTES // 1024} KiB."
    if problem:
        return {"mime": "", "data": None, "problem": problem[:200], "expires_at": now + RETRIED}
    return {"mime": mime, "data": fetched.data, "problem": "", "expires_at": now + KEPT}


def _mime(data: bytes) -> str:
    """Detect the type by signature; the type that the server claims is ignored."""
    found = format_of(data)
    return found.mime if found is not None and found.kind == "image" else ""


# --- what pages show -----------------------------------------------------------------------------------------------------
def load(servers: Iterable[Server]) -> None:
    """Load with one query which icons exist for many servers."""
    known: dict[int, set[str]] = {server.pk: server.__dict__.setdefault(_CACHED, set()) for server in servers}
    rows = Icon.objects.filter(server__in=known, data__isnull=False)
    for server_id, kept in rows.values_list("server_id", "digest"):
        known[server_id].add(kept)


def address(server: Server, named: Any) -> str:
    """The URL of our copy of the icon; "" if there is none."""
    src = source(named)
    if not src:
        return ""
    if _CACHED not in server.__dict__:
        load([server])
    kept = digest(src)
    return reverse("servers:icon", args=[server.slug, kept]) if kept in server.__dict__[_CACHED] else ""
