"""The session host: the part of a Celery worker that holds live sessions. One thread, one asyncio loop.

boot -> loop -> service (inbox, tick) -> one supervisor a session -> live (client, catalogue, calls)

The loop never touches the ORM: `db` reads through a few threads and writes through the audit writer. Whatever a message
asks for is in a row too, so a lost message costs at most one tick.
"""
