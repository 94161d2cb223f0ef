"""Authorization as MCP wants it, without I/O: what to ask of whom, and what an answer means.

Each flow is a generator that yields an HttpRequest and is sent the HttpResponse; `client/authorization.py` drives it.
Sources: MCP *Authorization* of each revision; RFC 6749, 7523, 7591, 7636, 8414, 8693, 8707, 9207, 9449, 9728.
"""
