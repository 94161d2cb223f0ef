"""Key rotation: re-wraps every sealed value under the current key of the key ring, while the product runs.

Each row is one conditional UPDATE that names its old value, so a value saved meanwhile is never overwritten, and a
rotation that was killed resumes where it stopped: the rows themselves show what is done.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.db.models import Count
from django.db.models.functions import Length

from servers import crypto, keyring
from servers.crypto import SealedField, SealError, sealed_fields
from servers.keyring import KeySource
from servers.keyring_file import next_key, use_next_key
from servers.signals import machines_asked

BATCH = 100
#: for the values of one batch, which are in memory and in one transaction together; a result may take megabytes
BATCH_BYTES = 4 * 1024 * 1024
#: a value sealed before a process noticed the new key and committed after the last pass would be left behind
SETTLE_SECONDS = 2.0 + keyring.FILE_SECONDS
#: between two batches, or a rotation would keep the other writers of SQLite waiting
_PAUSE_SECONDS = 0.01
_PASSES = 20


class SeveralMachines(SealError):
    pass


@dataclass
class RotationProgress:
    """`broken`: error messages of rows that cannot be decrypted; they are left unchanged and prevent the removal of
    their key. `newer`: how many other rows are left, because they were written under another key until the end."""

    renewed: int = 0
    broken: list[str] = field(default_factory=list)
    newer: int = 0

    @property
    def advice(self) -> str:
        return f"Values that another machine encrypted with an old key: {self.newer:,}. Copy the key ring to every machine, then rotate again."


def left() -> dict[str, int]:
    """The number of live rows under each key that is not the current one."""
    found: dict[str, int] = {}
    current = keyring.load().current
    for place in sealed_fields():
        others = place.rows().exclude(**{place.key_field: current}).values_list(place.key_field)
        for key_id, count in others.annotate(Count("pk")):
            found[key_id] = found.get(key_id, 0) + count
    return found


def begin() -> str | None:
    """A new key for a key ring in a file, unless a rotation is in progress; None if the key ring is left unchanged.
    Raises SeveralMachines if it would lock the other machines' workers out of all secrets."""
    if keyring.source() is not KeySource.FILE or left():
        return None
    path = Path(settings.KEYRING_FILE)
    if not next_key(path):
        machines = {machine for _, found in machines_asked.send(None) for machine in cast("set[str]", found)}
        if len(machines) > 1:
            raise SeveralMachines(
                f"Workers run on several machines. Run {settings.PROGRAM} rotate_keys --prepare, copy the key ring to each, and try again."
            )
    return use_next_key(path)


def rotate(
    on_progress: Callable[[int], None] = lambda renewed: None, settle: float = SETTLE_SECONDS
) -> RotationProgress:
    """Runs until only broken rows use another key, including rows written while it ran."""
    progress = RotationProgress()
    for _ in range(_PASSES):
        progress.broken = []
        for place in sealed_fields():
            for renewed in _renewed(place, progress):
                progress.renewed += renewed
                on_progress(progress.renewed)
        time.sleep(settle)
        progress.newer = max(0, sum(left().values()) - len(progress.broken))
        if not progress.newer:
            break
    return progress


def _renewed(place: SealedField, progress: RotationProgress) -> Iterator[int]:
    """How many rows of each batch were moved to the current key."""
    last = 0
    while batch := _batch(place, last):
        last = batch[-1]["pk"]
        with transaction.atomic():
            count = sum(_renew(place, row, progress) for row in batch)
        yield count
        time.sleep(_PAUSE_SECONDS)


def _batch(place: SealedField, after: int) -> list[dict[str, Any]]:
    rows = place.rows().filter(pk__gt=after).exclude(**{place.key_field: keyring.load().current}).order_by("pk")
    sizes = list(rows.annotate(sealed_bytes=Length(place.field)).values_list("pk", "sealed_bytes")[:BATCH])
    sums = accumulate(size for _, size in sizes)
    fitting = [
        pk
        for number, ((pk, _), total) in enumerate(zip(sizes, sums, strict=True))
        if not number or total <= BATCH_BYTES
    ]
    return list(rows.filter(pk__in=fitting).values("pk", "uid", place.field, place.key_field))


def _renew(place: SealedField, row: dict[str, Any], progress: RotationProgress) -> bool:
    before, key_id = bytes(row[place.field]), row[place.key_field]
    try:
        sealed, new_id = crypto.resealed(before, key_id=key_id, table=place.table, uid=row["uid"], field=place.field)
    except SealError as problem:
        progress.broken.append(str(problem))
        return False
    same = place.rows().filter(pk=row["pk"], **{place.field: before, place.key_field: key_id})
    return bool(same.update(**{place.field: sealed, place.key_field: new_id}) == 1)
