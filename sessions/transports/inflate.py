"""Bodies of a server that compresses although we asked it not to: inflated within a bound, or refused."""

import zlib

from ..protocol.errors import Fault, ProtocolError


class Inflater:
    """`feed()` never returns more than the bound in total; a bomb costs one chunk."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ProtocolError(
                Fault.NOT_MCP, f"The answer is compressed with {encoding[:20]}, which was not asked for."
            )
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._left = max_bytes

    def feed(self, chunk: bytes) -> bytes:
        try:
            data = self._engine.decompress(chunk, self._left + 1)
        except zlib.error as exc:
            raise ProtocolError(Fault.NOT_MCP, "The compressed answer is damaged.") from exc
        self._left -= len(data)
        if self._left < 0:
            raise ProtocolError(Fault.MESSAGE_LIMIT, "The answer inflates beyond the limit.")
        return data
