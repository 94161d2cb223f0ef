"""Topics `draft.<uid>`: the test of a connection before its server is registered. For reader threads only."""

from uuid import UUID

from django.template.loader import render_to_string

from servers.models import ServerDraft
from sessions.connections.draft_page import draft_context
from sessions.live.frames import Frame, encode


def draft_frames(uids: list[UUID]) -> dict[UUID, Frame]:
    return {draft.uid: _draft_frame(draft) for draft in ServerDraft.objects.filter(uid__in=uids)}


def _draft_frame(draft: ServerDraft) -> Frame:
    row = {"uid": str(draft.uid), "version": draft.version, "state": draft.state}
    html = render_to_string("servers/_test.html", draft_context(draft))
    return Frame(encode(f"draft.{draft.uid}", draft.version, "draft", [row], html), None, "draft", draft.version)
