"""Each message of the corpus gets its verdict, in the core and over a transport whose session survives."""

from sessions.mcp.core import json_text
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import ProtocolError, RpcError
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Answered, Outgoing, Session
from sessions.mcp.core.versions import REVISIONS
from tests.sessions.mcp.hostile.corpus import Verdict, every, written
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, legacy, scripted_http

CASES = tuple(every())


def waiting() -> Session:
    """A ready session with one open request, whose id is 1."""
    session = Session(Implementation("test", "1"), {}, Limits())
    session.settle(REVISIONS["2025-11-25"])
    session.request("tools/call", {}, wants_progress=True)
    return session


def verdict_on(session: Session, data: bytes) -> Verdict:
    """The client's verdict on a duplex stream (client/pump.py)."""
    try:
        inputs = session.receive(data)
    except ProtocolError:
        return Verdict.FAILS if session.attribute(data) else Verdict.UNREADABLE
    answers = [item for item in inputs if isinstance(item, Answered)]
    assert len(answers) <= 1, "a request was answered twice"
    if not answers:
        return Verdict.PENDING
    assert (answers[0].result is None) != (answers[0].error is None)
    return Verdict.ERROR if answers[0].error else Verdict.RESULT


def test_every_hostile_message_gets_its_verdict_and_leaves_nothing_behind() -> None:
    wrong = {}
    for case in CASES:
        session = waiting()
        verdict = verdict_on(session, written(case))
        left = 1 if verdict in (Verdict.PENDING, Verdict.UNREADABLE) else 0
        if verdict is not case.verdict or session.in_flight != left:
            wrong[case.name] = (verdict, session.in_flight)
    assert wrong == {}


def test_what_was_read_can_be_written_again() -> None:
    """Events and results are stored and displayed, so they must contain no lone surrogate and no infinity."""
    for case in CASES:
        try:
            inputs = waiting().receive(written(case))
        except ProtocolError:
            continue
        for item in inputs:
            if isinstance(item, Answered) and item.result is not None:
                json_text.encode(item.result).encode("utf-8")
            elif isinstance(item, Outgoing):
                json_text.parse(item.data, Limits())


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 200
    assert sorted({case.name for case in CASES}) == sorted(case.name for case in CASES)
    assert {case.verdict for case in CASES} == set(Verdict)


async def test_over_http_every_message_ends_its_call_and_the_session_lives_on() -> None:
    """Over HTTP each reply has its own request, so anything that is not an answer fails that request at once."""

    async def on_call(asked: Asked, line: Line) -> None:
        case = CASES[asked.message["params"]["arguments"]["case"]]
        data = case.data.replace(b"OTHER", b"999").replace(b"ID", str(asked.id).encode())
        await line.reply(200, data)

    async with scripted_http(legacy(on_call)) as peer, connected(http(peer.url)) as made:
        for number, case in enumerate(CASES):
            try:
                await made.client.call_tool("t", {"case": number})
                verdict = Verdict.RESULT
            except ProtocolError:
                verdict = Verdict.FAILS
            except RpcError:
                verdict = Verdict.ERROR
            expected = case.verdict if case.verdict in (Verdict.RESULT, Verdict.ERROR) else Verdict.FAILS
            assert verdict is expected, case.name
        assert made.client.in_flight == 0
        assert made.client.state == "ready"
