"""The inbox pages, with all middleware and templates."""

import html
import json
import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.enums import IdentityKind
from servers.models import AuditEvent, Identity
from sessions.enums import QuestionKind, QuestionState
from sessions.inbox import card as question_card
from sessions.inbox.questions import WORKER_GONE, withdraw_of_dead_workers
from sessions.models import McpSession, Question
from tests.servers.conftest import _a_writer_of_its_own, admin, person  # noqa: F401 -- fixtures
from tests.sessions.inbox.rows import FORM, SAMPLING, a_call, a_question, a_server, answered

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<img src=x onerror=alert(1)>\u202e\u200b"


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:  # noqa: F811 - the fixture
    client.force_login(admin)
    return client


def signed_in(name: str, *permissions: str) -> Client:
    browser = Client()
    browser.force_login(person(name, *permissions))
    return browser


def text(response: Any, status: int = 200) -> str:
    assert response.status_code == status, response.content.decode()[-2000:]
    return html.unescape(" ".join(response.content.decode().split()))


def post(browser: Client, question: Question, action: str = "accept", **fields: Any) -> Any:
    return browser.post(f"/inbox/{question.uid}/answer/", {"action": action} | fields)


def city(**more: str) -> dict[str, str]:
    return {
        "arg:/city": "Oslo",
        "arg.send:/visits": "on",
        "arg:/visits": "3",
        "arg.send:/size": "on",
        "arg:/size": "1",
    } | more


def own_session(user: Any) -> McpSession:
    """Of the user's own identity at the server of `a_question`."""
    own = Identity.objects.create(server=a_server(), kind=IdentityKind.PERSONAL, user=user, name=user.username)
    return McpSession.objects.create(server=own.server, identity=own, state_since=timezone.now())


def stored(question: Question) -> Any:
    question.refresh_from_db()
    return json.loads(question.answer.text) if question.answer else None


# --- lists -----------------------------------------------------------------------------------------------------------
def test_open_questions_are_first_with_their_call_and_the_rest_below(ada: Client, admin: Any) -> None:  # noqa: F811  a fixture by its name
    call = a_call(a_question(FORM).server, admin)
    waiting = a_question(FORM, call=call, owner_name="ada")
    over = answered(a_question(SAMPLING, QuestionKind.SAMPLING), {"model": "x"}, "bob")
    page = text(ada.get("/inbox/"))
    assert page.index(str(waiting.uid)) < page.index(str(over.uid))
    assert "Input request from “Demo”" in page
    assert "Which city do you mean?" in page
    assert f"#{call.pk}" in page
    assert 'aria-label="2 waiting"' in page
    assert "Answered" in page


def test_a_list_that_is_cut_counts_all_that_wait(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_card, "OPEN_SHOWN", 2)
    for _ in range(3):
        a_question(FORM)
    page = text(ada.get("/inbox/"))
    assert page.count("data-question-row") == 2
    assert '<span class="vh">Requests: </span>3</span>' in page
    assert "Only the 2 that expire first are listed." in page


def test_an_empty_inbox_says_what_arrives_there(ada: Client) -> None:
    page = text(ada.get("/inbox/"))
    assert "No requests waiting" in page
    assert 'data-inbox-count="0"' in page


def test_older_questions_are_a_page_further(ada: Client) -> None:
    questions = [answered(a_question(FORM), None, "bob", QuestionState.DECLINED) for _ in range(52)]
    first = text(ada.get("/inbox/"))
    assert str(questions[0].uid) not in first
    assert f"?before={questions[2].pk}" in first
    assert str(questions[0].uid) in text(ada.get(f"/inbox/?before={questions[2].pk}"))


# --- reading ---------------------------------------------------------------------------------------------------------
def test_the_words_of_a_server_are_text_and_hidden_characters_are_shown(ada: Client) -> None:
    schema = {"type": "object", "properties": {HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE}}}
    for params, kind in (
        ({"message": HOSTILE, "requestedSchema": schema}, QuestionKind.FORM),
        ({"message": HOSTILE, "url": f"https://example.com/{HOSTILE}"}, QuestionKind.URL),
        ({"messages": [{"role": HOSTILE, "content": {"type": "text", "text": HOSTILE}}], "systemPrompt": HOSTILE,
          "tools": [{"name": HOSTILE, "description": HOSTILE}]}, QuestionKind.SAMPLING),
    ):  # fmt: skip
        question = a_question(params, kind)
        for address in (f"/inbox/{question.uid}/", "/inbox/"):
            page = ada.get(address).content.decode()
            assert "<img src=x" not in page
            assert "\u202e" not in re.sub(r"<[^>]*>", "", page), "names of fields alone must stay as they are"
        assert "U+202E" in ada.get(f"/inbox/{question.uid}/").content.decode()


def test_who_may_only_look_sees_that_something_was_asked_and_nothing_of_it() -> None:
    vera = signed_in("vera", "view_server")
    question = a_question(FORM)
    for address in (f"/inbox/{question.uid}/", "/inbox/"):
        page = text(vera.get(address))
        assert "Input request from “Demo”" in page
        assert "Which city" not in page
        assert "arg:/city" not in page


def test_who_made_the_call_reads_the_question_without_permission_to_answer() -> None:
    vera = person("vera", "view_server")
    browser = Client()
    browser.force_login(vera)
    question = a_question(FORM, call=a_call(a_question(FORM).server, vera))
    page = text(browser.get(f"/inbox/{question.uid}/"))
    assert "Which city" in page
    assert "not answer it" in page
    assert post(browser, question, **city()).status_code == 403
    assert AuditEvent.objects.filter(action="account:permission:deny").exists()


def test_who_sees_a_request_of_another_users_session_is_offered_nothing_that_would_be_refused(ada: Client) -> None:
    question = a_question(FORM, session=own_session(person("bob")), personal=True)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "Which city" in page
    assert "Only that person can answer it" in page
    assert f"/inbox/{question.uid}/take/" not in page
    assert ada.post(f"/inbox/{question.uid}/take/").status_code == 403


def test_who_may_see_no_server_sees_no_question() -> None:
    nobody = signed_in("nobody")
    question = a_question(FORM)
    assert nobody.get(f"/inbox/{question.uid}/").status_code == 404
    assert str(question.uid) not in nobody.get("/inbox/").content.decode()


def test_the_list_reads_nothing_of_what_servers_ask_and_people_answer(ada: Client) -> None:
    """Which may be of any size, of each of them."""
    a_question(FORM)
    answered(a_question(FORM), {"city": "Oslo"}, "ada")
    with CaptureQueriesContext(connection) as queries:
        page = text(ada.get("/inbox/"))
    assert page.count("Which city do you mean?") == 2
    assert not [query["sql"] for query in queries if '"servers_payload"."text"' in query["sql"]]


def test_the_list_reads_no_session_of_each_personal_request(ada: Client, admin: Any) -> None:  # noqa: F811  a fixture by its name
    session = own_session(admin)

    def queries_with(more: int) -> int:
        for _ in range(more):
            a_question(FORM, session=session, personal=True)
        with CaptureQueriesContext(connection) as queries:
            assert "Which city do you mean?" in text(ada.get("/inbox/"))
        return len(queries)

    ada.get("/inbox/")
    assert queries_with(1) == queries_with(5)


# --- a form ----------------------------------------------------------------------------------------------------------
def test_a_form_opens_with_the_defaults_of_the_server_ticked_to_be_sent(ada: Client) -> None:
    page = text(ada.get(f"/inbox/{a_question(FORM).uid}/"))
    assert 'name="arg:/visits" value="3"' in page
    assert "Large</option>" in page
    assert "optional field" not in page


def test_an_answer_goes_with_its_defaults_and_types(ada: Client) -> None:
    question = a_question(FORM)
    assert post(ada, question, **city()).status_code == 303
    assert stored(question) == {"city": "Oslo", "visits": 3, "size": "l"}
    assert (question.state, question.answered_by) == (QuestionState.ACCEPTED, "ada")
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "Answered by ada" in page
    assert "Not delivered to the server yet" in page
    assert "Oslo" in page


def test_an_answer_that_its_worker_could_not_deliver_is_not_on_its_way_any_more(ada: Client) -> None:
    question = a_question(FORM, worker_uid=uuid4())
    assert post(ada, question, **city()).status_code == 303
    with transaction.atomic():
        withdraw_of_dead_workers([question.worker_uid])
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "stopped before it could deliver this answer" in page
    assert "Not delivered to the server yet" not in page


def test_an_answer_that_does_not_fit_comes_back_with_the_errors_at_its_fields(ada: Client) -> None:
    question = a_question(FORM)
    page = text(post(ada, question, **city(**{"arg:/city": "", "arg:/visits": "many"})), 422)
    assert 'href="#answer-city"' in page
    assert 'href="#answer-visits"' in page
    assert 'value="many"' in page
    short = text(post(ada, question, **city(**{"arg:/city": "O", "arg:/visits": "-1"})), 422)
    assert 'href="#answer-city"' in short
    assert 'href="#answer-visits"' in short
    question.refresh_from_db()
    assert question.state == QuestionState.OPEN


@pytest.mark.parametrize(("action", "state"), [("decline", "declined"), ("cancel", "cancelled")])
def test_declining_and_cancelling_need_no_field_and_are_two_things(ada: Client, action: str, state: str) -> None:
    question = a_question(FORM)
    assert post(ada, question, action).status_code == 303
    assert stored(question) is None
    assert question.state == state
    assert f"{state.capitalize()} by ada" in text(ada.get(f"/inbox/{question.uid}/"))


@pytest.mark.parametrize(
    ("state", "detail", "shown"),
    [
        ("withdrawn", "The server withdrew the request.", "The server withdrew the request"),
        ("withdrawn", "", "The server withdrew the request"),
        ("expired", "Not answered in time.", "Not answered in time"),
        ("expired", "Not answered in time. The server was notified.", "Not answered in time The server was notified."),
        ("accepted", "The server reported that the visit is complete.", "The server reported that the visit is complete"),
        ("withdrawn", "The call ended before anyone answered.", "The call ended before anyone answered"),
        ("withdrawn", WORKER_GONE, WORKER_GONE.removesuffix(".")),
    ],
)  # fmt: skip
def test_why_a_request_is_over_is_said_once_and_of_whom_it_is_true(
    ada: Client, state: str, detail: str, shown: str
) -> None:
    over = a_question(FORM, state=state, detail=detail, ended_at=timezone.now())
    page = text(ada.get(f"/inbox/{over.uid}/"))
    notice = re.search(r"data-question-over> .*?<div>(.*?)</div>", page)
    assert notice is not None
    said = re.sub(r"on <time.*?</time>", "", notice[1])
    assert " ".join(re.sub(r"<[^>]+>", " ", said).split()) == shown


def test_the_second_of_two_is_told_who_was_faster_and_sends_nothing_but_keeps_the_text(ada: Client) -> None:
    bob = signed_in("bob", "view_server", "answer_question")
    question = a_question(FORM)
    post(ada, question, **city())
    page = text(post(bob, question, **city(**{"arg:/city": "Rome"})), 409)
    assert "closed before your answer arrived. Your answer was not sent" in page
    assert 'data-copy="City: Rome Visits: 3"' in page
    assert "Answered by ada" in page
    assert "have permission to read the answer" in page
    assert stored(question)["city"] == "Oslo"


def test_the_text_of_a_model_that_comes_too_late_is_kept(ada: Client) -> None:
    bob = signed_in("bob", "view_server", "answer_question")
    question = a_question(SAMPLING, QuestionKind.SAMPLING)
    post(ada, question, "decline")
    page = text(post(bob, question, text="It is <4>.", model="bob", reason="endTurn"), 409)
    assert 'data-copy="It is <4>."' in page
    page = text(post(bob, question, text="Not a block", as_json="on", model="bob"), 422)
    assert 'data-copy="Not a block"' in page


def test_a_double_click_is_not_told_that_the_answer_was_not_sent(ada: Client) -> None:
    question = a_question(FORM)
    page = text(
        [ada.post(f"/inbox/{question.uid}/answer/", {"action": "accept"} | city(), follow=True) for _ in "12"][1]
    )
    assert "You have already sent this answer. Only the first one counts." in page
    assert "not sent" not in page
    page = text(ada.post(f"/inbox/{question.uid}/answer/", {"action": "decline"}, follow=True))
    assert "Your answer was not sent" in page


def test_a_field_that_asks_for_a_secret_is_warned_of_and_the_person_decides(ada: Client) -> None:
    schema = {"type": "object", "properties": {"pw": {"type": "string", "title": "Your password"}}}
    page = text(ada.get(f"/inbox/{a_question({'message': 'x', 'requestedSchema': schema}).uid}/"))
    assert "This form may ask for a secret" in page
    assert "“Your password”" in page
    assert 'value="accept"' in page


def test_a_description_that_warns_of_secrets_is_no_request_for_one(ada: Client) -> None:
    number = {"type": "integer", "description": "Your favorite integer (do not give us your pin)"}
    schema = {"type": "object", "properties": {"integer": number}}
    page = text(ada.get(f"/inbox/{a_question({'message': 'x', 'requestedSchema': schema}).uid}/"))
    assert "for a secret" not in page


def test_a_form_without_fields_is_a_question_of_yes_or_no(ada: Client) -> None:
    question = a_question({"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}})
    assert "Nothing to fill in. To agree, choose Send." in text(ada.get(f"/inbox/{question.uid}/"))
    assert post(ada, question).status_code == 303
    assert stored(question) == {}
    assert "erased" not in text(ada.get(f"/inbox/{question.uid}/"))


NESTED = {"city": {"type": "string"}, "place": {"type": "object", "properties": {"x": {"type": "string"}}}}


def test_a_form_with_nested_values_is_sent_without_them(ada: Client) -> None:
    schema = {"type": "object", "properties": NESTED, "required": ["city"]}
    question = a_question({"message": "x", "requestedSchema": schema})
    added = {"_op": "add:/place", "arg:/city": "Oslo"}
    page = text(ada.post(f"/inbox/{question.uid}/answer/", added))
    assert "mcpadmin does not send. Remove them, or decline." in page
    assert "the server receives your answer and continues." in page
    assert post(ada, question, **{"arg:/city": "Oslo"}).status_code == 303
    assert stored(question) == {"city": "Oslo"}


def test_a_form_that_requires_nested_values_can_only_be_refused(ada: Client) -> None:
    schema = {"type": "object", "properties": NESTED, "required": ["place"]}
    question = a_question({"message": "x", "requestedSchema": schema})
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "You can only decline or cancel." in page
    assert "the server receives your answer and continues." not in page
    assert post(ada, question, "decline").status_code == 303


@pytest.mark.parametrize(
    "schema", [None, [], "x", {"properties": []}, {"properties": {"a": 1}}, {"$ref": "http://x/"}], ids=str
)
def test_a_schema_that_is_none_can_still_be_declined(ada: Client, schema: Any) -> None:
    question = a_question({"message": "x", "requestedSchema": schema})
    assert ada.get(f"/inbox/{question.uid}/").status_code == 200
    assert post(ada, question, "decline").status_code == 303


def test_one_more_entry_of_a_list_keeps_what_was_typed(ada: Client) -> None:
    schema = {
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
        "required": ["names"],
    }
    question = a_question({"message": "x", "requestedSchema": schema})
    fields = {"_op": "add:/names", "arg.len:/names": "1", "arg:/names/0": "first"}
    page = text(ada.post(f"/inbox/{question.uid}/answer/", fields))
    assert 'value="first"' in page
    assert "arg:/names/1" in page


# --- a URL -----------------------------------------------------------------------------------------------------------
def test_an_address_is_a_link_that_tells_nothing_and_its_host_stands_out(ada: Client) -> None:
    question = a_question({"message": "Sign in", "url": "https://аррӏе.com/x"}, QuestionKind.URL)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert 'href="https://xn--80ak6aa92e.com/x" target="_blank" rel="noopener noreferrer"' in page
    assert "<mark>xn--80ak6aa92e.com</mark>" in page
    assert "аррӏе.com" in page
    assert post(ada, question).status_code == 303
    assert stored(question) is None
    assert question.state == QuestionState.ACCEPTED


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://example.com/", "https://a@b.example/"])
def test_an_address_that_is_not_opened_can_only_be_refused(ada: Client, url: str) -> None:
    question = a_question({"message": "Sign in", "url": url}, QuestionKind.URL)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "mcpadmin blocked this link" in page
    assert "data-visit" not in page
    assert 'value="accept"' not in page
    assert post(ada, question).status_code == 422
    assert post(ada, question, "decline").status_code == 303


# --- sampling --------------------------------------------------------------------------------------------------------
def test_an_answer_in_place_of_a_model_is_sent_as_one(ada: Client) -> None:
    question = a_question(SAMPLING, QuestionKind.SAMPLING)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "What is 2 + 2?" in page
    assert "50 tokens" in page
    assert 'value="cancel"' not in page
    assert post(ada, question, text="4", model="ada herself", reason="endTurn").status_code == 303
    block = {"type": "text", "text": "4"}
    assert stored(question) == {"role": "assistant", "content": block, "model": "ada herself", "stopReason": "endTurn"}


def test_the_request_can_be_read_whole_by_those_who_may_read_it(ada: Client) -> None:
    tool = {"name": "zoom", "inputSchema": {"type": "object", "properties": {"by-how-much": {"type": "number"}}}}
    asked = SAMPLING | {"tools": [tool], "metadata": {"trace": "t-1"}, "systemPrompt": "x" * 70_000 + "THE END"}
    question = a_question(asked, QuestionKind.SAMPLING)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "by-how-much" in page, "who answers with a use of the tool has to know its arguments"
    assert "THE END" not in page
    assert "more characters not shown" in page
    assert f"/inbox/{question.uid}/request.json" in page
    file = ada.get(f"/inbox/{question.uid}/request.json")
    assert json.loads(file.content) == asked
    assert file["Content-Disposition"].startswith("attachment")
    assert signed_in("vera", "view_server").get(f"/inbox/{question.uid}/request.json").status_code == 403
    assert signed_in("nobody").get(f"/inbox/{question.uid}/request.json").status_code == 404


def test_a_message_that_is_too_long_to_show_is_not_passed_off_as_whole(ada: Client) -> None:
    question = a_question(
        {"message": "x" * question_card.MESSAGE_CHARS + "AND THEN", "url": "https://a.example/"}, "url"
    )
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "AND THEN" not in page
    assert "8 more characters not shown" in page
    assert b"AND THEN" in ada.get(f"/inbox/{question.uid}/request.json").content


def test_an_answer_without_a_model_or_with_broken_json_comes_back_as_it_was_typed(ada: Client) -> None:
    question = a_question(SAMPLING, QuestionKind.SAMPLING)
    page = text(post(ada, question, text="{broken", as_json="on", model=""), 422)
    assert "{broken" in page
    assert 'id="id_model_error"' in page
    assert 'id="id_text_error"' in page
    wrong = text(post(ada, question, text='{"type": "film"}', as_json="on", model="m"), 422)
    assert 'id="id_text_error"' in wrong


# --- assignment ------------------------------------------------------------------------------------------------------
def test_taking_a_question_shows_everybody_who_is_on_it(ada: Client) -> None:
    question = a_question(FORM)
    bob = signed_in("bob", "view_server", "answer_question")
    assert bob.post(f"/inbox/{question.uid}/take/").status_code == 303
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "Assigned to <b>bob</b>" in page
    assert post(ada, question, **city()).status_code == 303, "anybody may still answer"


# --- other pages -----------------------------------------------------------------------------------------------------
def test_a_running_call_and_its_server_show_what_they_wait_for(ada: Client, admin: Any) -> None:  # noqa: F811  a fixture by its name
    call = a_call(a_question(FORM, state=QuestionState.EXPIRED).server, admin)
    question = a_question(FORM, call=call)
    card = text(ada.get(f"/calls/{call.uid}/card/"))
    assert "Waiting for an answer" in card
    assert f"/inbox/{question.uid}/" in card
    page = text(ada.get("/servers/demo/logs/"))
    assert "<span data-inbox-number>1</span> in the inbox" in page
