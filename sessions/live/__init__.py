"""The live connection of a page: WebSocket consumer, tickets, topics, and the frames that it pushes.

From a hint to a page: `hub` hears it, `streams` (for a call `call_stream`) decides what must be read, `topic_reads` reads it
once for all sockets, the modules named `…_frames` make frames of the rows, `outbox` sends them.
"""
