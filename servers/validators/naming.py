"""Names, tags, labels and times of a registration."""

import re

from django.core.exceptions import ValidationError

# Used in our own URLs under /servers/.
RESERVED_SLUGS = frozenset({"add", "demo", "test", "import", "export", "new"})


def validate_slug(slug: str) -> None:
    if slug in RESERVED_SLUGS:
        raise ValidationError(f"“{slug}” is reserved. Choose another short name.", code="reserved")


def validate_tags(tags: list[str]) -> None:
    if len(tags) > 20 or any(len(tag) > 40 for tag in tags):
        raise ValidationError("At most 20 tags of 40 characters. This limit cannot be changed.", code="tags")


_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")


def validate_worker_label(label: str) -> None:
    if label and not _LABEL.match(label):
        words = "At most 60 letters, digits, dots, hyphens and underscores, starting with a letter or digit."
        raise ValidationError(words, code="label")


#: seconds: (least, most) by field of Server
TIMES = {
    "connect_timeout_seconds": (1, 600),
    "request_timeout_seconds": (1, 86_400),
    "total_timeout_seconds": (1, 604_800),
    "idle_timeout_seconds": (10, 604_800),
}


def validate_seconds(field: str, seconds: int) -> None:
    least, most = TIMES[field]
    if not least <= seconds <= most:
        raise ValidationError(f"Between {least} and {most:,} seconds.", code="seconds")
