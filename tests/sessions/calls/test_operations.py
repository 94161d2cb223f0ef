"""Resource reads, prompts and completions: what is placed, what is refused, and what the audit log records."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit import writer as writer_module
from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, TransportKind
from servers.models import AuditEvent, Server
from sessions.calls import placing, repeating
from sessions.calls.operations import completion_reference, completion_target
from sessions.calls.placing import Rejected, SubmittedArguments
from sessions.connections import commands
from sessions.enums import CallState
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ
from sessions.models import Call, McpSession
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db(transaction=True)
ABOUT = {"argument": {"name": "tone", "value": "k"}}
PROMPT = {"name": "review", "arguments": [{"name": "code", "required": True}, {"name": "tone"}, "nonsense", {"x": 1}]}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writer_module.reset()


@pytest.fixture
def server() -> Server:
    made = Server.objects.create(slug="library", name="Library", transport=TransportKind.STDIO, command="true")
    now = timezone.now()
    store_listing(made, DefinitionKind.PROMPT, [PROMPT], now)
    store_listing(made, DefinitionKind.RESOURCE, [{"uri": "lib://plain", "name": "plain"}], now)
    store_listing(made, DefinitionKind.RESOURCE_TEMPLATE, [{"uriTemplate": "lib://{name}", "name": "any"}], now)
    return made


@pytest.fixture
def caller() -> Any:
    return person("carla", "view_server", "call_tool")


def place(user: Any, server: Server, method: str, target: str, **given: Any) -> Call:
    return placing.place(Actor.of_user(user), user, server, target, SubmittedArguments(**given), method=method)


def arguments(call: Call) -> Any:
    return json.loads(payloads.read(call.arguments) or "")


def test_a_placed_call_of_each_method_carries_it_in_its_row_and_its_event(caller: Any, server: Server) -> None:
    placed = [
        place(caller, server, RESOURCES_READ, "lib://plain"),
        place(caller, server, PROMPTS_GET, "review", value={"code": "x"}),
        place(caller, server, COMPLETE, "ref/prompt:review", value=ABOUT),
    ]
    assert [arguments(call) for call in placed] == [{"uri": "lib://plain"}, {"code": "x"}, ABOUT]
    for call, method in zip(placed, (RESOURCES_READ, PROMPTS_GET, COMPLETE), strict=True):
        event = AuditEvent.objects.get(action=AuditAction.CALL_REQUEST, call_uid=call.uid)
        assert (call.method, json.loads(event.body)["details"]["method"]) == (method, method)
        assert call.definition_digest


def test_a_uri_that_no_list_holds_is_read_all_the_same_whatever_its_scheme(caller: Any, server: Server) -> None:
    for uri in ("lib://shelf/9", "urn:isbn:0451450523", "not even a uri", "Ünïcode://ж"):
        assert place(caller, server, RESOURCES_READ, uri).definition_digest == ""


@pytest.mark.parametrize(
    "uri", ["lib://a\nb", "lib://\x00", "lib://\x7f", "lib://\x85", "lib://\ud800", "", "x" * 8193], ids=range(7)
)
def test_a_uri_with_control_characters_or_without_end_is_refused_and_leaves_nothing(
    uri: str, caller: Any, server: Server
) -> None:
    with pytest.raises(Rejected):
        place(caller, server, RESOURCES_READ, uri)
    assert not Call.objects.exists()


def test_reading_takes_no_arguments_but_its_own_uri(caller: Any, server: Server) -> None:
    with pytest.raises(Rejected, match="only its URI"):
        place(caller, server, RESOURCES_READ, "lib://plain", value={"uri": "lib://other"})


@pytest.mark.parametrize(
    ("given", "pointers"),
    [
        ({"value": {}}, {"/code"}),
        ({"form": {"arg.code": [""], "arg.tone": ["kind"]}}, {"/code"}),
        ({"value": {"code": 5, "tone": None}}, {"/code", "/tone"}),
        ({"text": "[]"}, {""}),
        ({"text": "{"}, {""}),
    ],
)
def test_arguments_of_a_prompt_that_are_missing_or_no_text_name_their_place(
    given: dict[str, Any], pointers: set[str], caller: Any, server: Server
) -> None:
    with pytest.raises(Rejected) as refusal:
        place(caller, server, PROMPTS_GET, "review", **given)
    assert set(refusal.value.errors) == pointers


def test_a_form_sends_what_was_filled_in_with_plain_line_breaks(caller: Any, server: Server) -> None:
    form = {"arg.code": ["a\r\nb"], "arg.tone": [""], "csrfmiddlewaretoken": ["x"]}
    assert arguments(place(caller, server, PROMPTS_GET, "review", form=form)) == {"code": "a\nb"}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"argument": {"name": "tone"}},
        {"argument": {"name": "", "value": ""}},
        {"argument": {"name": "tone", "value": 5}},
        {"argument": {"name": "tone", "value": ""}, "context": {"arguments": {"code": []}}},
    ],
    ids=range(5),
)
def test_a_completion_that_is_none_is_refused(value: Any, caller: Any, server: Server) -> None:
    with pytest.raises(Rejected):
        place(caller, server, COMPLETE, "ref/prompt:review", value=value)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (PROMPTS_GET, "no-such-prompt"),
        (COMPLETE, "ref/prompt:no-such-prompt"),
        (COMPLETE, "ref/resource:lib://other/{x}"),
        (COMPLETE, "ref/tool:review"),
        (COMPLETE, "review"),
        ("tools/list", "review"),
        ("tools/call", "review"),
    ],
    ids=lambda value: value.replace("/", "-"),
)
def test_what_the_server_does_not_offer_is_not_asked_for(method: str, target: str, caller: Any, server: Server) -> None:
    with pytest.raises(Rejected):
        place(caller, server, method, target, value=ABOUT | {"code": "x"})


def test_a_paused_connection_takes_no_call_and_says_who_paused_it(caller: Any, server: Server) -> None:
    commands.shared_session(server)
    McpSession.objects.update(paused=True, paused_by="ada")
    with pytest.raises(Rejected, match=r"paused by ada\. Resume it"):
        place(caller, server, RESOURCES_READ, "lib://plain")


def test_whoever_may_not_call_tools_may_not_read_either_and_that_is_recorded(server: Server) -> None:
    with pytest.raises(access.Denied):
        place(person("vera", "view_server"), server, RESOURCES_READ, "lib://plain")
    assert AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY).subject == "lib://plain"


@pytest.mark.parametrize(
    ("method", "target", "given"),
    [(RESOURCES_READ, "lib://any", {}), (PROMPTS_GET, "review", {"code": "x"}), (COMPLETE, "ref/prompt:review", ABOUT)],
)
def test_each_can_be_repeated_as_what_it_was(method: str, target: str, given: Any, caller: Any, server: Server) -> None:
    first = place(caller, server, method, target, value=given)
    second = repeating.repeat(Actor.of_user(caller), caller, first)
    assert (second.method, second.target, second.repeats) == (method, target, first)
    assert arguments(second) == arguments(first)


def test_a_cancelled_reading_names_its_method_in_both_events(caller: Any, server: Server) -> None:
    call = place(caller, server, RESOURCES_READ, "lib://plain")
    assert placing.cancel(Actor.of_user(caller), caller, call)
    assert Call.objects.get().state == CallState.CANCELLED
    bodies = AuditEvent.objects.filter(call_uid=call.uid).values_list("body", flat=True)
    assert [json.loads(body)["details"]["method"] for body in bodies] == [RESOURCES_READ] * 3


def test_a_reference_is_one_text_in_the_ledger_and_an_object_on_the_wire() -> None:
    template = completion_target(DefinitionKind.RESOURCE_TEMPLATE, "lib://{a:3}")
    assert completion_reference(template) == {"type": "ref/resource", "uri": "lib://{a:3}"}
    assert completion_reference(completion_target("prompt", "a:b")) == {"type": "ref/prompt", "name": "a:b"}
