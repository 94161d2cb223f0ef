"""Topics `server.<uid>`: the state of a session, and the numbers of its lists. For reader threads only."""

from uuid import UUID

from django.template.loader import render_to_string

from servers.models import Server
from sessions.catalog import reading
from sessions.connections.diagnosis import explain
from sessions.live.frames import Frame, encode
from sessions.live.topics import Topic, TopicKind
from sessions.models import McpSession
from sessions.overview import rows as queries

ServerKey = tuple[UUID, UUID | None]  # the server, and a user's personal identity there


def server_frames(keys: list[ServerKey]) -> dict[ServerKey, Frame]:
    """Kind "session" of topics `server.<uid>`: the row, and the live part of the page's head."""
    uids, requested = {uid for uid, _ in keys}, set(keys)
    own = queries.own_sessions(uids) if any(identity for _, identity in keys) else []
    found: dict[ServerKey, tuple[Server, McpSession | None]] = {
        (server.uid, None): (server, session) for server, session in queries.servers_with_sessions(uids)
    }
    for session in own:
        session.server.seen_as = session.identity_id
        found[session.server.uid, session.identity.uid] = session.server, session
    return {key: _server_frame(Topic(TopicKind.SERVER, *key), *found[key]) for key in requested & found.keys()}


def _server_frame(topic: Topic, server: Server, session: McpSession | None) -> Frame:
    row = queries.server_row(server, session)
    explanation = explain(session.fault, session.fault_detail, server) if session and session.fault else None
    context = {"server": server, "mcp_session": session, "explanation": explanation}
    html = render_to_string("servers/_session.html", context)
    return Frame(encode(topic.name, row["version"], "session", [row], html), None, "session", row["version"])


def server_as_seen(topic: Topic) -> Server | None:
    """The server as the listeners of this topic see it."""
    server = Server.objects.filter(uid=topic.row).first()
    if server is not None and topic.identity is not None:
        server.seen_as = server.identities.filter(uid=topic.identity).values_list("pk", flat=True).first() or 0
    return server


def catalog_frame(topic: Topic) -> Frame | None:
    server = server_as_seen(topic)
    if server is None:
        return None
    row = queries.catalog_row(server) | reading.row(server)
    return Frame(encode(topic.name, None, "catalog", [row]), None, "catalog")
