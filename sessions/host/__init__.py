"""The session host: the part of a Celery worker that holds live sessions. One thread, one asyncio loop.

boot -> loop -> service (and tick) -> session_supervisor, one a session -> open_session (client, catalog, inbox,
subscriptions). Beside the supervisors, calls/dispatch sends the calls of all sessions.

The loop never touches the ORM: `db` reads through a few threads and writes through the audit writer. Whatever a message
asks for is in a row too, so a lost message costs at most one tick.
"""
