"""Decompresses, within bounds, the bodies of servers that compress although we asked them not to."""

import zlib
from collections.abc import Iterator
from typing import Final

from ..core.errors import Fault, ProtocolError
from ..core.limits import MIB, Limits

#: bytes inflated at a time, so that the consumer can stop in between
_PIECE: Final = 64 * 1024
#: below this size a high ratio does no harm
_RATIO_FROM: Final = MIB


class Inflater:
    """Inflates one body. `endless`: an event stream, which has no total size limit; each of its events has one."""

    def __init__(self, encoding: str, limits: Limits, *, endless: bool = False) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ProtocolError(
                Fault.NOT_MCP, f"The response is compressed with {encoding[:20]}, which was not requested."
            )
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._most = None if endless else limits.inflated_bytes
        self._ratio = limits.inflated_ratio
        self._taken = self._given = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The inflated pieces of a chunk. ProtocolError (inflated_limit, not_mcp)."""
        self._taken += len(chunk)
        while chunk:
            if self._engine.eof:
                # The engine would keep it all. Another member is legal in gzip, but we did not even ask for the first.
                raise ProtocolError(Fault.NOT_MCP, "The compressed response contains data after its end.")
            try:
                piece = self._engine.decompress(chunk, _PIECE)
            except zlib.error as exc:
                raise ProtocolError(Fault.NOT_MCP, "The compressed response is damaged.") from exc
            chunk = self._engine.unconsumed_tail or self._engine.unused_data
            self._given += len(piece)
            self._check()
            if piece:
                yield piece

    def _check(self) -> None:
        if self._most is not None and self._given > self._most:
            raise ProtocolError(
                Fault.INFLATED_LIMIT, f"The response exceeds the limit of {self._most} bytes after decompression."
            )
        if self._given > _RATIO_FROM and self._given > self._taken * self._ratio:
            raise ProtocolError(
                Fault.INFLATED_LIMIT, f"The response expands to more than {self._ratio} times its compressed size."
            )
