"""The card of a tool that fails for a feature missing in the modern era offers the legacy era, where the tool works."""

import json

import pytest
from django.test import Client

from servers.enums import AuditAction
from servers.models import AuditEvent, Server
from sessions.enums import CallState
from tests.peers.peers import HERE, peer_python
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually
from tests.sessions.host.make import make_session
from tests.sessions.host.questions import answer, asked_by, begin, person, text_of

pytestmark = pytest.mark.integration
SCRIPT = str(HERE / "eliciting_server.py")


@pytest.mark.parametrize(
    ("sdk", "fails_as"),
    [("sdk2", CallState.RPC_ERROR), pytest.param("fastmcp", CallState.TOOL_ERROR, marks=pytest.mark.long)],
)
def test_a_tool_that_cannot_ask_is_reconnected_as_legacy_and_asks(
    sdk: str, fails_as: CallState, shared_worker: WorkerProcess
) -> None:
    session = make_session("orders", command=str(peer_python(sdk)), arguments=[SCRIPT])
    assert await_ready(session, 60).era == "modern"
    eventually(lambda: session.server.definitions.filter(key="ask").exists())
    failed = ended(begin(session, "ask"))
    assert failed.state == fails_as

    admin, guest = Client(), Client()
    admin.force_login(person("grace"))
    guest.force_login(person("guest", superuser=False))
    assert "Reconnect as legacy" in admin.get(f"/calls/{failed.uid}/").content.decode()
    assert "data-may-change-server" in admin.get(f"/calls/{failed.uid}/").content.decode()
    assert guest.post("/servers/orders/legacy/").status_code in (403, 404)
    assert "to the legacy era" in admin.get("/servers/orders/legacy/").content.decode()
    assert Server.objects.get().era == "auto"
    assert admin.post("/servers/orders/legacy/").status_code == 302
    assert Server.objects.get().era == "legacy"
    changed = AuditEvent.objects.filter(action=AuditAction.SERVER_CHANGE).latest("seq")
    assert json.loads(changed.body)["details"]["changes"] == {"era": {"before": "auto", "after": "legacy"}}
    assert changed.actor_name == "grace"

    eventually(lambda: await_ready(session, 60).era == "legacy")
    call = begin(session, "ask")
    assert answer(asked_by(call), "accept", {"city": "Oslo"})
    assert "Oslo" in text_of(ended(call))
    assert "Reconnect as legacy" not in admin.get(f"/calls/{failed.uid}/").content.decode()
