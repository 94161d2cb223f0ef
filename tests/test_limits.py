"""Every refusal by a limit names the limit, its value with the unit, who may change it, and where.

The walk covers the whole table of servers.limits: a limit without a refusal here fails the test.
"""

import html
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import TooManyFieldsSent, TooManyFilesSent, ValidationError
from django.test import RequestFactory, override_settings
from twisted.web.http import HTTPChannel

from mcpadmin import accounts, errors, setup
from mcpadmin.web import pages
from servers import limits
from servers.audit.writer import BATCH_LIMIT, Writer, WriterBusy
from servers.connect_limit import TooOften
from servers.credentials import identities, kinds
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.exporting import requesting as exports
from servers.models import Server
from servers.registration.importing.document import read
from servers.secret import Secret
from servers.validators.commands import validate_arguments
from servers.validators.roots import validate_roots
from servers.validators.values import validate_header_value
from servers.views import agent_oauth
from sessions.agents.calls import approval_messages
from sessions.agents.connection import too_many_values
from sessions.agents.policy import admission
from sessions.agents.policy.counting import Exceeded
from sessions.approvals import ending
from sessions.calls import final_states
from sessions.connections import process_page, refusals
from sessions.connections.diagnosis import LIMITS_OF, explain
from sessions.inbox import questions
from sessions.live import limits as live_limits
from sessions.live import socket_calls
from tests.servers.conftest import person

ROOT = Path(__file__).resolve().parents[1]
OF_SERVERS = {name for name, limit in limits.LIMITS.items() if limit.of_server}


def raised(act: Callable[[], Any]) -> str:
    with pytest.raises((ValidationError, WriterBusy)) as caught:
        act()
    problem = caught.value
    return " ".join(problem.messages) if isinstance(problem, ValidationError) else str(problem)


def imported(text: str) -> str:
    return raised(lambda: read(text))


def refused_by_django(exception: Exception) -> str:
    return errors.bad_request(RequestFactory().get("/"), exception).content.decode()


def with_tiny(name: str, act: Callable[[], Any]) -> str:
    """The refusal of an import, with a limit that is reached at once."""
    before = limits.LIMITS[name]
    limits.LIMITS[name] = replace(before, fixed=1e-9 if name == "import_seconds" else 8)
    try:
        return raised(act).replace(limits.LIMITS[name].in_words(), before.in_words())
    finally:
        limits.LIMITS[name] = before


def pem_too_large() -> str:
    return raised(lambda: kinds.check(Parts(CredentialKind.CERTIFICATE, {}, {"ca": Secret("a" * 70_000)})))


def too_many_personal_identities() -> str:
    server = Server.objects.create(name="Orders", slug="orders", transport="stdio", command="x", signs_in_as="either")
    with override_settings(PERSONAL_SESSIONS=0):
        words = raised(lambda: identities._require_room(person("ada"), server))
    return words.replace("Limit: 0", "Limit: 100")


def writer_busy() -> str:
    """A writer whose thread is busy, so that all places of its queue are taken."""
    release, made = threading.Event(), Writer()
    first = made.submit(release.wait)
    try:
        for _ in range(limits.number("audit_queue") + BATCH_LIMIT + 1):  # one batch is being written
            try:
                made.submit(lambda: None)
            except WriterBusy as busy:
                return str(busy)
        raise AssertionError("nothing was refused")
    finally:
        release.set()
        first.result(20)
        made.stop(20)


def refused_by_the_kernel(line: str) -> str:
    found = refusals._refusal(line)
    assert found is not None
    return found.why


#: limit: its refusal, as a user or a server's owner reads it
REFUSALS: dict[str, Callable[[], str]] = {
    **{name: lambda name=name: pages.too_large(name).text for name in limits.LIMITS if name.startswith("body_")},
    "request_head_bytes": lambda: pages.head_too_large().text,
    "request_headers": lambda: pages.head_too_large().text,
    "request_seconds": lambda: pages.too_slow().text,
    "connections": lambda: pages.too_many_connections("connections").text,
    "connections_per_address": lambda: pages.too_many_connections("connections_per_address").text,
    "form_fields": lambda: refused_by_django(TooManyFieldsSent()),
    "form_files": lambda: refused_by_django(TooManyFilesSent()),
    "sign_in_failures": lambda: accounts.ClosedSignup().error_messages["too_many_login_attempts"],
    "sign_in_failures_per_address": lambda: accounts.ClosedSignup().error_messages["too_many_login_attempts"],
    "sign_in_requests_per_address": lambda: accounts.too_many_requests(
        RequestFactory().get("/", headers={"HX-Request": "true"})
    ).content.decode(),
    "setup_attempts": lambda: setup.LIMITED.text,
    "import_bytes": lambda: imported('{"a": "%s"}' % ("x" * limits.MIB)),
    "import_yaml_bytes": lambda: imported("a:\n" + "  - x\n" * 12_000),
    "import_json5_bytes": lambda: imported("{a: '%s'}" % ("x" * 17_000)),
    "import_depth": lambda: imported('{"a":' * 100 + "1" + "}" * 100),
    "import_servers": lambda: imported(json.dumps({"mcpServers": {f"s{n}": {"command": "x"} for n in range(201)}})),
    "import_seconds": lambda: with_tiny("import_seconds", lambda: read("a: [" + "1," * 30_000 + "]")),
    "import_memory_mib": lambda: with_tiny("import_memory_mib", lambda: read("a: [" + "1," * 30_000 + "]")),
    "session_calls": lambda: final_states.BUSY.detail,
    "sockets_per_user": lambda: live_limits.refusal(4030),
    "socket_messages_per_second": lambda: live_limits.refusal(4029),
    "socket_message_bytes": lambda: live_limits.refusal(4009),
    "socket_call_bytes": lambda: live_limits.refusal(4009),
    "socket_calls_in_flight": lambda: socket_calls._BUSY,
    "tries_per_minute": lambda: " ".join(TooOften(5).messages),
    "personal_sessions": too_many_personal_identities,
    "inbox_seconds": lambda: questions.NO_ANSWER,
    "pem_bytes": pem_too_large,
    "arguments": lambda: raised(lambda: validate_arguments(["x"] * 201)),
    "value_chars": lambda: raised(lambda: validate_header_value("x" * 20_000)),
    "audit_queue": writer_busy,
    "open_exports": lambda: str(exports.TooMany()),
    "stdio_files": lambda: process_page.disk_excess(0, "/srv/home"),
    "stdio_file_mib": lambda: refused_by_the_kernel("OSError: [Errno 27] File too large: 'dump.bin'"),
    "stdio_open_files": lambda: refused_by_the_kernel("Error: EMFILE: too many open files, open '/srv/x'"),
    "oauth_token_requests": lambda: json.loads(agent_oauth.too_many("oauth_token_requests").content)[
        "error_description"
    ],
    "agent_body_bytes": lambda: pages.too_large("agent_body_bytes").text,
    "agent_body_values": lambda: too_many_values().message,
    **{
        name: lambda name=name: admission.too_many(Exceeded(name, limits.stated(name), 1.0, alone=False)).message
        for name in (
            *("agent_calls_in_flight", "agent_person_in_flight", "agent_requests_per_second"),
            *("agent_requests_per_person", "agent_streams", "agent_person_streams"),
        )
    },
    "agent_approvals": approval_messages.too_many,
    "agent_approval_seconds": lambda: ending.EXPIRED.detail,
    "agent_streams_in_all": lambda: admission.full().message,
    "roots": lambda: raised(lambda: validate_roots([{"uri": f"file:///{number}", "name": ""} for number in range(51)])),
}
#: refused by tests that need a worker, a socket or a second user: (file, what it expects there)
ELSEWHERE = {
    "agent_tokens": ("tests/servers/agents/test_tokens.py", 'stated("agent_tokens")'),
    "oauth_registrations": ("tests/servers/agents/test_oauth.py", 'stated("oauth_registrations")'),
    "own_credentials": ("tests/servers/credentials/test_identities.py", 'stated("own_credentials")'),
    "subscriptions": ("tests/sessions/subscriptions/test_orders.py", "Limit: 1 subscriptions per server and identity"),
    "socket_topics": ("tests/sessions/live/test_door.py", '"socket_topics"'),
    "inbox_open": (
        "tests/sessions/host/test_worker_inbox_ends.py",
        "Limit: 4 requests waiting in the inbox per server.",
    ),
    "inbox_per_minute": (
        "tests/sessions/host/test_worker_inbox_ends.py",
        "Limit: 10 inbox requests a minute per server.",
    ),
}
#: what a server sends or uses, by the fault that names it
BY_FAULT = {name: fault for fault, names in LIMITS_OF.items() for name in names}


def test_every_limit_of_the_table_has_its_refusal() -> None:
    assert sorted([*REFUSALS, *ELSEWHERE, *BY_FAULT]) == sorted(limits.LIMITS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_limit_its_value_and_who_may_change_it(name: str) -> None:
    words, limit = html.unescape(REFUSALS[name]()), limits.LIMITS[name]
    assert value_of(limit) in words, words
    assert limit.variable in words if limit.variable else "cannot be changed" in words, words


def value_of(limit: limits.ProductLimit) -> str:
    """Validators name the number first: "At most 200 arguments"."""
    return limit.in_words()


@pytest.mark.parametrize("name", BY_FAULT)
def test_the_remedy_of_a_fault_names_the_limit_its_value_and_who_may_change_it(name: str) -> None:
    limit, remedy = limits.LIMITS[name], explain(BY_FAULT[name], "").remedy
    assert f"{limit.in_words()} {limit.about}" in remedy
    assert limit.variable in remedy
    assert "Settings, Limits" in remedy or not limit.of_server


@pytest.mark.parametrize("name", sorted(OF_SERVERS))
def test_the_remedy_names_the_value_of_this_server_where_it_has_its_own(name: str) -> None:
    own = limits.LIMITS[name].value * 2
    server = Server(name="Orders", limits={name: own})
    doubled = replace(limits.LIMITS[name], of_server=False, fixed=own).in_words()
    assert doubled in explain(BY_FAULT[name], "", server).remedy


@pytest.mark.parametrize(("file", "expected"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_is_refused_elsewhere_is_tested_there(file: str, expected: str) -> None:
    assert expected in (ROOT / file).read_text()


def test_a_limit_that_django_or_the_server_enforces_is_the_one_of_the_table() -> None:
    assert limits.number("form_fields") == settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
    assert limits.number("form_files") == settings.DATA_UPLOAD_MAX_NUMBER_FILES
    assert limits.number("body_arguments_bytes") == settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    assert limits.number("request_head_bytes") <= HTTPChannel.totalHeadersSize
    assert limits.number("request_headers") <= HTTPChannel.maxHeaders
    bodies = [limits.number(name) for name in limits.LIMITS if name.startswith("body_")]
    assert max(bodies) <= settings.FILE_UPLOAD_MAX_MEMORY_SIZE, "above it, Django writes the body to a temporary file"


def test_every_variable_of_the_table_is_a_setting() -> None:
    source = (ROOT / "mcpadmin" / "settings.py").read_text()
    assert [one.name for one in limits.LIMITS.values() if one.variable and f'"{one.variable}"' not in source] == []


@pytest.mark.parametrize(
    ("number", "words"), [(900, "900 bytes"), (16_384, "16 KiB"), (1_048_576, "1 MiB"), (2_621_440, "2.5 MiB")]
)
def test_sizes_are_written_as_people_read_them(number: int, words: str) -> None:
    assert limits.size(number) == words
