"""Witnesses: places outside the database that keep the checkpoints. The checkpoint file is always one of them; the
others are in MCPADMIN_WITNESSES. This module tracks what each has; a worker sends (sessions/host/checkpoints.py).

    https://witness.example.com/mcpadmin              POST of a line of the checkpoint file
    syslog://logs.example.com:6514                    RFC 5424 over TLS
    s3://s3.example.com/bucket/prefix?region=eu-central-1&days=365    one object each, kept by object lock for so many days
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from servers.enums import StatementKind
from servers.models import Checkpoint, Witness

#: seconds until the next attempt after each failure; the last one from then on
DELAYS: Final = (5, 30, 120, 600)
#: longer than an attempt may take
LEASE: Final = timedelta(seconds=180)
#: statements that one delivery appends to the file
BATCH: Final = 500
FILE: Final = "file"
_SYSLOG_PORT: Final = 6514


class WitnessKind(Enum):
    FILE = "Checkpoint file"
    HTTP = "HTTP"
    SYSLOG = "Syslog"
    S3 = "S3"


@dataclass(frozen=True)
class Place:
    """`name` is what pages show and how the row is found: it contains no query and no password."""

    kind: WitnessKind
    name: str
    url: str = ""
    host: str = ""
    port: int = 0
    bucket: str = ""
    prefix: str = ""
    region: str = ""
    days: int = 0


@dataclass(frozen=True)
class Claimed:
    """What this process must deliver now, oldest first."""

    place: Place
    checkpoints: list[Checkpoint]


@dataclass(frozen=True)
class State:
    """For the page. `behind`: the number of events of the newest checkpoint that this witness does not have yet."""

    place: Place
    row: Witness | None
    behind: int

    @property
    def problem(self) -> str:
        return self.row.problem if self.row is not None else ""


# --- the settings ---------------------------------------------------------------------------------------------------------
def places() -> list[Place]:
    """Raises ValueError if it is not a valid witness; `manage.py check` reports that earlier."""
    return [Place(WitnessKind.FILE, FILE), *map(parsed, settings.WITNESSES)]


def parsed(text: str) -> Place:
    """Raises ValueError, with words for the operator."""
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname or "", url.port
    except ValueError:  # its own message may quote part of a password
        raise ValueError("The address of a witness is not a valid URL.") from None
    name = f"{url.scheme}://{host}{f':{port}' if port else ''}{url.path}"
    if not host or url.username is not None:
        raise ValueError("The address of a witness needs a host and must not contain a password.")
    if url.scheme in ("http", "https"):
        return Place(WitnessKind.HTTP, name, url=text.strip())
    if url.scheme == "syslog":
        return Place(WitnessKind.SYSLOG, name, host=host, port=port or _SYSLOG_PORT)
    if url.scheme != "s3":
        raise ValueError("The address of a witness begins with https://, syslog:// or s3://.")
    bucket, _, prefix = url.path.strip("/").partition("/")
    options = parse_qs(url.query)
    days = options.get("days", ["0"])[0]
    if not bucket or not days.isdigit():
        raise ValueError("Write an S3 witness as s3://host/bucket/prefix?region=eu-central-1&days=365.")
    scheme = "http" if options.get("tls") == ["off"] else "https"
    endpoint = f"{scheme}://{host}{f':{port}' if port else ''}"
    region = options.get("region", ["us-east-1"])[0]
    return Place(WitnessKind.S3, name, endpoint, bucket=bucket, prefix=prefix, region=region, days=int(days))


# --- deliveries -----------------------------------------------------------------------------------------------------------
def due() -> list[Place]:
    """Witnesses that lack a checkpoint and may be tried. Only reads."""
    newest = Checkpoint.objects.values_list("pk", flat=True).first()
    if newest is None:
        return []
    others = Witness.objects.exclude(_may_be_tried(timezone.now()), delivered__lt=newest)
    not_now = set(others.values_list("name", flat=True))
    return [place for place in places() if place.name not in not_now]


def _may_be_tried(now: datetime) -> Q:
    """Also if the next attempt is later than the longest wait: it was set before the clock was set back."""
    longest = max(LEASE, timedelta(seconds=settings.TIME_SCALE * DELAYS[-1]))
    return Q(next_attempt_at__lte=now) | Q(next_attempt_at__gt=now + longest)


def claim(place: Place) -> Claimed | None:
    """In a transaction. None if another process has it, or nothing is left."""
    now = timezone.now()
    row, _ = Witness.objects.get_or_create(name=place.name, defaults={"next_attempt_at": now})
    if not _free(place).update(next_attempt_at=now + LEASE):
        return None
    missing = Checkpoint.objects.filter(pk__gt=row.delivered).order_by("pk")
    if place.kind is WitnessKind.FILE:
        return Claimed(place, list(missing[:BATCH]))
    # The newest of consecutive regular ones covers all events of the others. Other kinds each state something of their
    # own, and a cut says nothing about the events after it.
    special = missing.exclude(kind=StatementKind.REGULAR).first()
    regular = (missing if special is None else missing.filter(pk__lt=special.pk)).last()
    chosen = regular or special
    return Claimed(place, [chosen] if chosen is not None else [])


def _free(place: Place) -> QuerySet[Witness]:
    newest = Checkpoint.objects.values_list("pk", flat=True).first() or 0
    return Witness.objects.filter(_may_be_tried(timezone.now()), name=place.name, delivered__lt=newest)


def delivered(claimed: Claimed) -> None:
    """In a transaction."""
    newest = claimed.checkpoints[-1]
    now = timezone.now()
    Witness.objects.filter(name=claimed.place.name).update(
        delivered=newest.pk, delivered_seq=newest.seq, delivered_at=now, failures=0, problem="", next_attempt_at=now
    )


def failed(place: Place, problem: str) -> None:
    """In a transaction."""
    rows = Witness.objects.filter(name=place.name)
    failures = rows.values_list("failures", flat=True).first() or 0
    seconds = settings.TIME_SCALE * DELAYS[min(failures, len(DELAYS) - 1)]
    again = timezone.now() + timedelta(seconds=seconds)
    rows.update(failures=F("failures") + 1, problem=problem[:500], next_attempt_at=again)


def file_failed(problem: str) -> None:
    """Runs in a transaction: the file cannot be read, so it cannot be compared with the log."""
    Witness.objects.get_or_create(name=FILE, defaults={"next_attempt_at": timezone.now()})
    Witness.objects.filter(name=FILE).exclude(problem=problem[:500]).update(problem=problem[:500], failures=1)


def states() -> list[State]:
    """The states of all witnesses in the settings, the file first."""
    rows = {row.name: row for row in Witness.objects.all()}
    newest = Checkpoint.objects.values_list("seq", flat=True).first() or 0
    found = []
    for place in places():
        row = rows.get(place.name)
        found.append(State(place, row, max(0, newest - (row.delivered_seq if row is not None else 0))))
    return found
