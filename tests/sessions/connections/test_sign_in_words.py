"""The card of a server that requires a token says whether to sign in, sign in again, or fix the authorization."""

from typing import Any

import pytest
from django.utils import timezone

from servers.models import Identity
from sessions.enums import SessionCondition
from sessions.models import McpSession
from sessions.overview.rows import server_row
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
CHALLENGE = {"metadata_url": "", "scopes": []}


def waiting(challenge: dict[str, Any], **fields: Any) -> McpSession:
    session = make_session()
    Identity.objects.filter(pk=session.identity_id).update(challenge=challenge)
    values = {"condition": SessionCondition.NEEDS_AUTH, "fault": "unauthorized"} | fields
    McpSession.objects.filter(pk=session.pk).update(**values)
    return McpSession.objects.get(pk=session.pk)


@pytest.mark.parametrize(
    ("challenge", "fields", "word"),
    [
        pytest.param(CHALLENGE, {}, "Sign in", id="nobody-has-yet"),
        pytest.param(CHALLENGE, {"connected_at": timezone.now()}, "Sign in again", id="it-was-connected"),
        pytest.param({}, {"connected_at": timezone.now()}, "Needs authorization", id="a-header-of-its-own-is-refused"),
        pytest.param(CHALLENGE, {"fault": "forbidden"}, "Needs authorization", id="forbidden"),
        pytest.param(CHALLENGE, {"condition": "failing"}, "Failing", id="another-condition"),
        pytest.param(CHALLENGE, {"state": "ready"}, "Ready", id="ready"),
    ],
)
def test_a_card_says_whether_to_sign_in_or_to_do_it_again(
    challenge: dict[str, Any], fields: dict[str, Any], word: str
) -> None:
    session = waiting(challenge, **fields)
    assert server_row(session.server, session)["word"] == word
