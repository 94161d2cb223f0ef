"""A preview between two requests: the text of the file, sealed, for its author only, deleted after an hour.

It is stored in the drafts table without a transport: no worker ever opens it.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import F
from django.utils import timezone

from servers import crypto
from servers.enums import DraftState
from servers.models import ServerDraft
from servers.registration.drafts import FIELD, LIFETIME, TABLE, purge_drafts
from servers.registration.importing.applying import ImportOutcome

NO_TRANSPORT = ""
_MOST_HELD = 5


def hold(user: Any, text: str) -> ServerDraft:
    """Raises crypto.SealError. Deletes the oldest previews of this user to make room."""
    purge_drafts()
    mine = ServerDraft.objects.filter(user_id=user.pk, transport=NO_TRANSPORT).order_by("-pk")
    ServerDraft.objects.filter(pk__in=list(mine.values_list("pk", flat=True)[_MOST_HELD - 1 :])).delete()
    uid = uuid.uuid4()
    sealed, key_id = _sealed(uid, text)
    return ServerDraft.objects.create(
        uid=uid,
        user=user,
        transport=NO_TRANSPORT,
        state=DraftState.SUCCEEDED,  # nothing waits for a worker
        sealed=sealed,
        key_id=key_id,
        expires_at=timezone.now() + LIFETIME,
    )


def text_of(draft: ServerDraft) -> str:
    """Empty once everything in it has been applied. Raises crypto.SealError."""
    opened = crypto.open_sealed(draft.sealed, key_id=draft.key_id, table=TABLE, uid=draft.uid, field=FIELD)
    return str(json.loads(opened.reveal())["text"])


def claim(draft: ServerDraft, shown_version: int) -> bool:
    """Returns False if the preview has been applied since it was shown: a second click does nothing."""
    waiting = ServerDraft.objects.filter(pk=draft.pk, version=shown_version)
    return bool(waiting.update(version=F("version") + 1))


def settle(draft: ServerDraft, outcomes: Sequence[ImportOutcome]) -> None:
    """Store the outcomes, including those of earlier attempts. The text is deleted unless something was refused and may
    be retried."""
    before = outcomes_of(draft) or outcomes
    outcomes = [old if old.is_stored and not new.is_stored else new for old, new in zip(before, outcomes, strict=True)]
    fields: dict[str, Any] = {"report": {"outcomes": [outcome.plain() for outcome in outcomes]}}
    if not any(outcome.result == "refused" for outcome in outcomes):
        fields["sealed"], fields["key_id"] = _sealed(draft.uid, "")
    ServerDraft.objects.filter(pk=draft.pk).update(**fields)


def outcomes_of(draft: ServerDraft) -> list[ImportOutcome]:
    return [ImportOutcome(**plain) for plain in draft.report.get("outcomes", [])]


def _sealed(uid: uuid.UUID, text: str) -> tuple[bytes, str]:
    return crypto.seal(json.dumps({"text": text}), table=TABLE, uid=uid, field=FIELD)
