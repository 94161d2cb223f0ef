"""What housekeeping removes from the definitions. Otherwise, a server whose lists differ at each read, because a
description contains the time or a URI contains a session id, would fill the database."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from django.db.models import Count, DurationField, ExpressionWrapper, F

from servers.audit.batches import Batches
from servers.enums import DefinitionChange
from servers.models import Definition, DefinitionVersion

#: per definition: no one looks through more, and a server that changes a tool every week needs two years for them
VERSIONS_KEPT: Final = 100
#: per list, those that were offered longest: a tool that comes back changed must be recognized, whatever a server
#: offered briefly in between. A forgotten definition begins a new history
REMOVED_KEPT: Final = 1_000
_OFFERED_FOR: Final = ExpressionWrapper(F("removed_at") - F("first_seen_at"), DurationField())


def trim_all(on_progress: Callable[[], None] = lambda: None) -> int:
    """Trim in small transactions. Definitions that are offered stay, and so do versions that agents may call while a
    change waits for a person. Returns the number of versions and definitions removed."""
    versions = _remove(_old_versions(), _remove_versions, on_progress)
    return versions + _remove(_long_removed(), _remove_definitions, on_progress)


def _remove(keys: Iterator[int], remove: Callable[[Sequence[int]], object], on_progress: Callable[[], None]) -> int:
    batches, gone = Batches(), 0
    while some := list(islice(keys, batches.size)):
        batches.each(some, remove)
        gone += len(some)
        on_progress()
    return gone


def _old_versions() -> Iterator[int]:
    histories = DefinitionVersion.objects.order_by().values("definition_id").annotate(versions=Count("pk"))
    long = histories.filter(versions__gt=VERSIONS_KEPT).values("definition_id")
    for definition in Definition.objects.filter(pk__in=long).only("approved_digest"):
        rows = definition.versions.order_by("-pk").values_list("pk", flat=True)
        approved = rows.filter(digest=definition.approved_digest).exclude(change=DefinitionChange.REMOVED).first()
        yield from (key for key in rows[VERSIONS_KEPT:] if key != approved)


def _remove_versions(keys: Sequence[int]) -> None:
    DefinitionVersion.objects.filter(pk__in=keys).delete()


def _long_removed() -> Iterator[int]:
    removed = Definition.objects.filter(removed_at__isnull=False, approved_digest="")
    lists = removed.order_by().values("identity_id", "kind").annotate(definitions=Count("pk"))
    for identity, kind in list(lists.filter(definitions__gt=REMOVED_KEPT).values_list("identity_id", "kind")):
        rows = removed.filter(identity_id=identity, kind=kind).order_by(_OFFERED_FOR.desc(), "-pk")
        yield from list(rows.values_list("pk", flat=True)[REMOVED_KEPT:])


def _remove_definitions(keys: Sequence[int]) -> None:
    """Remove those that were not offered again meanwhile."""
    removed = Definition.objects.filter(pk__in=keys, removed_at__isnull=False, approved_digest="")
    gone = list(removed.values_list("pk", flat=True))
    DefinitionVersion.objects.filter(definition_id__in=gone).delete()
    Definition.objects.filter(pk__in=gone).only("pk").delete()
