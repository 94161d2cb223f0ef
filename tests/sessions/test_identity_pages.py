"""Only the owner of a personal session, and people who may read everyone's results, see its pages and live topics."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers import access
from servers.audit import writer as writing
from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind, IdentityKind, SignsInAs, TransportKind
from servers.models import Credential, Definition, Identity, Server
from sessions.connections import commands
from sessions.enums import SessionState
from sessions.inbox import questions
from sessions.inbox.questions import NewQuestion
from sessions.live import call_frames, feeds, inbox_frames, server_frames, subscription_frames
from sessions.live.frames import Frame
from sessions.live.topics import Topic, TopicKind, parse
from sessions.live.viewers import Viewer, sees_row
from sessions.models import Call, LogLine, McpSession, Question, Subscription
from sessions.overview import server_list
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_hold
from tests.sessions.inbox.rows import FORM, a_question
from tests.sessions.subscriptions.rows import make_subscription
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db(transaction=True)
MINE, SHARED = "own words of ada", "words for everybody"


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Any:
    yield
    writing.reset()


@pytest.fixture
def server(db: None) -> Server:
    fields = {"transport": TransportKind.STREAMABLE_HTTP, "url": "https://mcp.example.com/mcp"}
    made = Server.objects.create(slug="who", name="Who", signs_in_as=SignsInAs.EITHER, **fields)
    world(commands.shared_session(made), SHARED)
    return made


@pytest.fixture
def ada(server: Server) -> Any:
    user = person("ada", "view_server", "call_tool", "manage_subscription", "answer_question")
    own = Identity.objects.create(server=server, user=user, kind=IdentityKind.PERSONAL, name="ada")
    session = commands.session_of(own, server)
    McpSession.objects.filter(pk=session.pk).update(state=SessionState.READY)
    world(session, MINE, user=user)
    return user


@pytest.fixture
def bea(server: Server) -> Any:
    return person("bea", "view_server", "call_tool", "manage_subscription", "answer_question")


@pytest.fixture
def auditor(server: Server) -> Any:
    return person("auditor", "view_server", "view_payload", "answer_question")


def world(session: McpSession, words: str, user: Any = None) -> None:
    """Create a tool, a call, a log line, a subscription and a question of this session, all with this text."""
    identity, now = session.identity, timezone.now()
    own = identity.kind == IdentityKind.PERSONAL
    key = words.replace(" ", "_")
    store_listing(session.server, DefinitionKind.TOOL, [{"name": key, "inputSchema": {}}], now, identity)
    call = make_call(session, key)
    Call.objects.filter(pk=call.pk).update(user=user, personal=own)
    ring = {"server": session.server, "identity": identity if own else None}
    LogLine.objects.create(**ring, seq=1, at=now, source="server", text=words)
    make_subscription(session, f"note://{key}", title=words)
    question = a_question({**FORM, "message": words}, call=call)
    Question.objects.filter(pk=question.pk).update(session=session, server=session.server, personal=own)


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def shown(user: Any, path: str) -> str:
    answer: Any = client_of(user).get(path)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


def words(page: str) -> list[str]:
    return re.sub(r"<[^>]+>", " ", page).split()


def mine(model: Any) -> Any:
    """The row of Ada's personal session."""
    own = {Call: "identity", Subscription: "identity", Question: "session__identity"}[model]
    return model.objects.get(**{f"{own}__kind": IdentityKind.PERSONAL})


# --- pages -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tab", ["tools", "logs"])
def test_lists_and_log_are_those_of_the_readers_identity(tab: str, server: Server, ada: Any, bea: Any) -> None:
    words = {"tools": (MINE.replace(" ", "_"), SHARED.replace(" ", "_")), "logs": (MINE, SHARED)}[tab]
    for user, wanted, other in ((ada, *words), (bea, *words[::-1])):
        text = shown(user, f"/servers/who/{tab}/")
        assert wanted in text
        assert other not in text


@pytest.mark.parametrize("model", [Call, Subscription, Question], ids=["call", "subscription", "question"])
def test_a_page_of_an_own_session_is_found_by_its_owner_and_who_reads_all(
    model: Any, ada: Any, bea: Any, auditor: Any
) -> None:
    place = {Call: "calls", Subscription: "subscriptions", Question: "inbox"}[model]
    path = f"/{place}/{mine(model).uid}/"
    found = [client_of(user).get(path).status_code for user in (ada, bea, auditor)]
    assert found == [200, 404, 200]
    refused, nothing = (client_of(bea).get(f"/{place}/{uid}/").content.decode() for uid in (mine(model).uid, uuid4()))
    assert words(refused) == words(nothing), "whether it exists is not said"
    assert "does not exist, or you don&#x27;t have access to it." in refused


@pytest.mark.parametrize("path", ["/servers/who/history/", "/subscriptions/", "/inbox/", "/", "/palette/?q=words"])
def test_nothing_of_an_own_session_is_in_another_persons_lists(path: str, ada: Any, bea: Any) -> None:
    for words in (MINE, MINE.replace(" ", "_")):
        assert words not in shown(bea, path)
    assert MINE in shown(ada, path).replace("_", " ")


def test_an_own_call_stays_hidden_when_server_and_user_are_gone(
    server: Server, ada: Any, bea: Any, auditor: Any
) -> None:
    path = f"/calls/{mine(Call).uid}/"
    server.delete()
    assert [client_of(user).get(path).status_code for user in (ada, bea, auditor)] == [200, 404, 200]
    ada.delete()
    assert [client_of(user).get(path).status_code for user in (bea, auditor)] == [404, 200]


def test_what_is_asked_on_an_own_session_is_its_owners_to_answer(ada: Any, bea: Any, auditor: Any) -> None:
    path = f"/inbox/{mine(Question).uid}/take/"
    assert [client_of(user).post(path).status_code for user in (bea, auditor, ada)] == [404, 403, 303]


def test_a_question_is_of_the_identity_on_whose_session_it_came(ada: Any) -> None:
    McpSession.objects.update(desired="open")
    asking = {"kind": "form", "method": "elicitation/create", "origin": "request", "summary": "?", "params": "{}"}
    for session in McpSession.objects.select_related("identity"):
        row = questions.receive(NewQuestion(uid=uuid4(), **asking), make_hold(session))
        assert row is not None
        personal = session.identity.kind == IdentityKind.PERSONAL
        assert (row.personal, row.identity_name) == (personal, session.identity.name)


def test_the_list_of_servers_shows_the_readers_own_state(server: Server, ada: Any, bea: Any) -> None:
    def rows(client: Any) -> str:
        return shown(client, "/servers/").partition("<tbody")[2]

    assert "Ready" in rows(ada)
    assert server.name in rows(bea)
    assert "Ready" not in rows(bea)


def test_the_page_sessions_names_the_identity_to_who_sees_all(ada: Any, bea: Any, auditor: Any) -> None:
    McpSession.objects.update(desired="open")
    cells = [re.sub(r"\s", "", shown(user, "/sessions/")) for user in (auditor, bea)]
    assert ["<td>ada</td>" in text for text in cells] == [True, False]
    assert ["<td>shared</td>" in text for text in cells] == [True, True]


# --- changing the identity -----------------------------------------------------------------------------------------------
def test_the_page_says_as_whom_one_speaks(server: Server, ada: Any, bea: Any) -> None:
    assert "You use your personal identity" in shown(ada, "/servers/who/identity/")
    assert "You use the shared identity" in shown(bea, "/servers/who/identity/")
    Server.objects.update(signs_in_as=SignsInAs.PERSONAL)
    assert "You have no personal identity on this server" in shown(bea, "/servers/who/identity/")
    assert "You need your own credential" in shown(bea, "/servers/who/tools/")
    assert SHARED.replace(" ", "_") not in shown(bea, "/servers/who/tools/")


def test_who_may_not_call_tools_is_not_sent_for_a_credential_that_they_cannot_add(server: Server, bea: Any) -> None:
    Server.objects.update(signs_in_as=SignsInAs.PERSONAL)
    vera, need = person("vera", "view_server"), "You need your own credential here."
    assert need in shown(bea, "/")
    assert need not in shown(vera, "/")
    head = shown(vera, "/servers/who/tools/")
    assert re.search(r'<span data-needs-call-tool>\s*<a class="btn btn-p sm"\s+href="/servers/who/identity/"', head)
    assert "<span data-without-call-tool>This requires permission to call tools." in head
    assert "You don&#x27;t have permission to call tools." in shown(vera, "/servers/who/identity/")
    assert "data-permission-missing" not in shown(bea, "/servers/who/identity/")


def test_a_token_typed_in_is_sealed_and_opens_the_own_session(server: Server, bea: Any) -> None:
    client = client_of(bea)
    answer: Any = client.post(
        "/servers/who/identity/credential/?kind=bearer", {"token": "canary-own-token"}, follow=True
    )
    assert "You use your personal identity" in answer.content.decode()
    assert "canary-own-token" not in answer.content.decode()
    row = Credential.objects.get(owner=bea)
    assert (row.name, row.host) == ("Who (bea)", "mcp.example.com")
    assert McpSession.objects.get(identity__user=bea).desired == "open"
    address = f"/servers/who/identity/credential/{row.uid}/remove/"
    assert f'href="{address}"' in shown(bea, "/servers/who/identity/")
    assert "Delete Who (bea)?" in shown(bea, address)
    assert Credential.objects.filter(owner=bea).exists(), "the page only asks"
    client.post(address)
    assert not Credential.objects.filter(owner=bea).exists()


def test_a_token_that_is_none_is_refused_at_its_box_and_makes_no_identity(server: Server, bea: Any) -> None:
    answer: Any = client_of(bea).post("/servers/who/identity/credential/?kind=bearer", {"token": ""})
    assert answer.status_code == 422
    assert not access.own_identities(bea).exists()


def test_going_back_shows_subscriptions_first_and_keeps_their_history(server: Server, ada: Any) -> None:
    assert MINE in shown(ada, "/servers/who/identity/shared/")
    client_of(ada).post("/servers/who/identity/shared/")
    row = mine(Subscription)
    assert (row.active, row.state, row.reason) == (False, "ended", "The identity was removed.")
    assert Subscription.objects.get(identity__kind=IdentityKind.SHARED).active
    assert mine(Call).state == "requested" or mine(Call).state == "cancelled"
    assert McpSession.objects.get(identity__user=ada).desired == "closed"
    assert SHARED.replace(" ", "_") in shown(ada, "/servers/who/tools/")


def test_credentials_at_another_server_that_got_the_short_name_are_not_deleted(server: Server, ada: Any) -> None:
    address, client = "/servers/who/identity/shared/", client_of(ada)
    fields = Fields(shown(ada, address)).found
    Server.objects.filter(pk=server.pk).update(slug="who-old")
    other = Server.objects.create(slug="who", name="Another", signs_in_as=SignsInAs.EITHER, url="https://b.example/mcp")
    client.post("/servers/who/identity/credential/?kind=bearer", {"token": "canary-own-token"})
    client.post(address, fields)
    assert [one.server for one in access.own_identities(ada)] == [other]
    fields = Fields(shown(ada, address)).found
    other.delete()
    Server.objects.filter(pk=server.pk).update(slug="who")
    assert client.post(address, fields).status_code == 409


# --- live ----------------------------------------------------------------------------------------------------------------
def viewer(user: Any) -> Viewer:
    return Viewer(get_user_model().objects.get(pk=user.pk), "key")


def test_a_topic_of_an_own_session_is_its_owners(server: Server, ada: Any, bea: Any, auditor: Any) -> None:
    identity = Identity.objects.get(user=ada)
    for kind in (TopicKind.SERVER, TopicKind.LOG):
        topic = parse(f"{kind}.{server.uid}.{identity.uid}")
        assert topic is not None
        assert [sees_row(viewer(user), topic) for user in (ada, bea, auditor)] == [True, False, False]
        assert not sees_row(viewer(ada), Topic(kind, uuid4(), identity.uid))
    for kind, model in ((TopicKind.CALL, Call), (TopicKind.SUBSCRIPTION, Subscription)):
        topic = Topic(kind, mine(model).uid)
        assert [sees_row(viewer(user), topic) for user in (ada, bea, auditor)] == [True, False, True]
    assert parse(f"call.{uuid4()}.{uuid4()}") is None


def test_frames_of_an_own_session_go_to_its_owner(server: Server, ada: Any, bea: Any, auditor: Any) -> None:
    def seen(user: Any, frames: list[Frame]) -> str:
        one = viewer(user)
        return "".join(frame.text for frame in frames if frame.audience.has(one.user_id, one.sees_personal))

    waiting = inbox_frames.frames(None)
    asked = str(mine(Question).uid)
    assert [asked in seen(user, waiting) for user in (ada, bea, auditor)] == [True, False, True]
    assert [f'"open":{n}' in seen(user, waiting) for user, n in ((ada, 2), (bea, 1), (auditor, 2))] == [True] * 3
    watched = subscription_frames.board_frames(None)
    assert [MINE in seen(user, watched) for user in (ada, bea, auditor)] == [True, False, True]
    listed = [server_list.states(user, [server.uid])[0].look.word for user in (ada, bea, auditor)]
    assert listed == ["Ready", "Disconnected", "Disconnected"]


def test_calls_and_lists_of_the_two_topics_are_apart(server: Server, ada: Any) -> None:
    own = Topic(TopicKind.SERVER, server.uid, Identity.objects.get(user=ada).uid)
    shared, now = Topic(TopicKind.SERVER, server.uid), timezone.now() - timedelta(minutes=1)
    for topic, words, other in ((own, MINE, SHARED), (shared, SHARED, MINE)):
        uids = list(Call.objects.values_list("uid", flat=True))
        for frames in (
            call_frames.server_call_frames(topic, uids, now),
            call_frames.server_call_frames(topic, None, now),
        ):
            text = "".join(frame.text for frame in frames)
            assert words.replace(" ", "_") in text
            assert other.replace(" ", "_") not in text
        assert [row["text"] for row in feeds.feed_after(log_of(topic), 0).rows] == [words]
        frame = server_frames.catalog_frame(topic)
        assert frame is not None
        assert '"tool":1' in frame.text
    assert Definition.objects.count() == 2


def log_of(topic: Topic) -> Topic:
    return Topic(TopicKind.LOG, topic.uid, topic.identity)


def test_an_own_credential_is_stored_for_no_other_server_and_no_other_address_than_the_page_named(
    server: Server, bea: Any
) -> None:
    client = Client()
    client.force_login(bea)
    page = f"/servers/{server.slug}/identity/credential/?kind=bearer"
    html = client.get(page).content.decode()
    shown = {name: re.search(rf'name="{name}" value="([^"]+)"', html) for name in ("uid", "place")}
    data = {name: found[1] for name, found in shown.items() if found} | {"value": "canary-token-1", "name": "Mine"}
    assert data.keys() >= {"uid", "place"}
    Server.objects.filter(pk=server.pk).update(url="https://other.example.com/mcp")
    assert "has changed since this page was opened" in client.post(page, data, follow=True).content.decode()
    Server.objects.filter(pk=server.pk).update(slug="who-2")
    answer = client.post(page, data)
    assert answer.headers["location"] == "/servers/who-2/identity/credential/?kind=bearer"
    Server.objects.filter(pk=server.pk).update(url=server.url)
    other = Server.objects.create(
        slug="who", name="Other", url=server.url, transport=server.transport, signs_in_as=server.signs_in_as
    )
    commands.shared_session(other)
    Server.objects.filter(pk=server.pk).delete()
    assert "was deleted, and another server" in client.post(page, data, follow=True).content.decode()
    assert not Credential.objects.exists()
