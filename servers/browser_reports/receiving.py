"""Anyone can send a report, so none of it is trusted: few rows, short texts, no query strings, and a limit per
address."""

import hashlib
import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.db.models import F
from django.utils import timezone

from servers.accounts.browser_sessions import browser_words
from servers.json import text as json_text
from servers.models import BrowserReport

MOST_BYTES: Final = 8 * 1024
MOST_CAUSES: Final = 200
#: per address, in ten minutes
MOST_REPORTS: Final = 100
KEPT: Final = timedelta(days=30)


def read(body: bytes) -> dict[str, Any] | None:
    """The report in a body as browsers send it to `report-uri`; None for anything else."""
    try:
        found = json_text.loads(body.decode())
    except (UnicodeDecodeError, json_text.JsonProblem):
        return None
    report = found.get("csp-report") if isinstance(found, dict) else None
    return report if isinstance(report, dict) and report.get("violated-directive") else None


def store(report: dict[str, Any], user_agent: str) -> bool:
    """Store one row per cause. False if the limit on rows is reached."""
    directive = _text(report.get("effective-directive") or report.get("violated-directive"), 60)
    blocked, page = _address(report.get("blocked-uri")), _address(report.get("document-uri"))
    source = _address(report.get("source-file"))
    if source and isinstance(report.get("line-number"), int):
        source = f"{source}:{report['line-number']}"[:300]
    cause = json.dumps([directive, blocked, page, source])
    digest, now = hashlib.sha256(cause.encode()).hexdigest(), timezone.now()
    if BrowserReport.objects.filter(digest=digest).update(count=F("count") + 1, last_at=now):
        return True
    forget_old()
    if BrowserReport.objects.count() >= MOST_CAUSES:
        return False
    facts = {"directive": directive, "blocked": blocked, "page": page, "source": source}
    BrowserReport.objects.get_or_create(
        digest=digest, defaults=facts | {"browser": browser_words(user_agent)[:60], "first_at": now, "last_at": now}
    )
    return True


def forget_old() -> int:
    """Delete old reports and return their number."""
    return BrowserReport.objects.filter(last_at__lt=timezone.now() - KEPT).delete()[0]


def _address(given: Any) -> str:
    """The address without query, fragment and password, which may contain secrets. Words such as `inline` stay."""
    text = _text(given, 2_000)
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    return parts._replace(netloc=host, query="", fragment="").geturl()[:300]


def _text(given: Any, most: int) -> str:
    text = given if isinstance(given, str) else ""
    return "".join(character for character in text if character.isprintable())[:most]
