"""What an agent is told about a call that is waiting for approval."""

from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from servers import limits
from sessions.agents.call_request import answerable
from sessions.agents.calls.questions import Relayed
from sessions.agents.exchange import Exchange
from sessions.mcp.core.capabilities import elicitation_modes
from sessions.models import Approval

#: many clients give up after a minute
WAIT_SECONDS: Final = 50.0
COME_BACK_SECONDS: Final = 30
PAGE_KEY: Final = "mcpadmin/approval"


def too_many() -> str:
    return f"Too many calls with this token are waiting for approval. {limits.stated('agent_approvals')}"


def page_of(approval: Approval) -> str:
    return f"{settings.PUBLIC_URL}{reverse('inbox:approval', args=[approval.uid])}"


def visit(exchange: Exchange, call: UUID) -> Relayed | None:
    """Elicitation by URL, for an agent that declared it. Call it in a thread."""
    if "url" not in elicitation_modes(answerable(exchange)):
        return None
    found = _of(call)
    if found is None:
        return None
    words = f"{exchange.named(found.call.target)} on {found.call.server_name} is waiting for approval. Open the page to see its arguments."
    params = {"mode": "url", "elicitationId": str(found.uid), "url": page_of(found), "message": words}
    return Relayed(found.uid, "elicitation/create", params)


def words(exchange: Exchange, call: UUID) -> tuple[str, dict[str, Any]]:
    """The words for the model, and the content of `_meta`. Call it in a thread."""
    found = _of(call)
    if found is None:
        return "The call is waiting for approval.", {}
    page = page_of(found)
    said = (
        f"{exchange.named(found.call.target)} has not been called yet. It is waiting for a person to approve it (approval {found.uid}) at {page}. {found.why} "
        "Make the same call again later: it does not start a second call, and returns the result of this one once a person has approved it."
    )
    return said, {PAGE_KEY: page}


def _of(call: UUID) -> Approval | None:
    return Approval.objects.select_related("call").filter(call__uid=call).first()
