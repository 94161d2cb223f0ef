"""If the message to the workers is lost, their tick continues a sign-in, even with no page open."""

import pytest
from django.test import Client

from servers.credentials import authorizations
from servers.enums import AuthorizationState
from servers.models import ServerAuthorization
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.test_worker_sign_in import Protected, ada, begun, brought_back, protected, registered

__all__ = ["ada", "protected"]
pytestmark = [pytest.mark.integration, pytest.mark.deadline(200)]


def test_both_steps_of_a_journey_are_found_by_the_tick(
    ada: Client, shared_worker: WorkerProcess, protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorizations, "ask", lambda _: None)
    server = registered(protected.url)
    page = begun(ada, server)
    parameters = brought_back(ada, page)
    assert ada.get("/sign-in/callback/", parameters).url == page
    eventually(ServerAuthorization.objects.filter(state=AuthorizationState.DONE).first, 30, "nobody finished it")
    assert protected.events("code") == 1
