"""Connection faults in Toxiproxy's vocabulary. Times in milliseconds (`slicer`: microseconds).

latency      each chunk arrives `latency` later, plus or minus `jitter`
bandwidth    at most `rate` KB a second
slow_close   forwards the end of the stream after `delay`
timeout      a black hole: nothing gets through; closes after `timeout`, with 0 stays open until the toxic is removed
reset_peer   RST to both sides after `timeout`
slicer       pieces of `average_size` bytes, plus or minus `size_variation`, `delay` apart
limit_data   closes once `bytes` have passed
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Stream = Literal["upstream", "downstream"]
ATTRIBUTES: dict[str, dict[str, float]] = {
    "latency": {"latency": 0, "jitter": 0},
    "bandwidth": {"rate": 0},
    "slow_close": {"delay": 0},
    "timeout": {"timeout": 0},
    "reset_peer": {"timeout": 0},
    "slicer": {"average_size": 1, "size_variation": 0, "delay": 0},
    "limit_data": {"bytes": 0},
}


@dataclass(frozen=True)
class Toxic:
    kind: str
    stream: Stream = "downstream"
    name: str = ""
    #: the share of connections that it affects
    toxicity: float = 1.0
    attributes: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = ATTRIBUTES.get(self.kind)
        if known is None:
            raise ValueError(f"no toxic is called {self.kind!r}")
        if strange := self.attributes.keys() - known.keys():
            raise ValueError(f"{self.kind} knows no {', '.join(sorted(strange))}")
        if self.stream not in ("upstream", "downstream"):
            raise ValueError(f"a stream is upstream or downstream, not {self.stream!r}")

    def __getitem__(self, name: str) -> float:
        return self.attributes.get(name, ATTRIBUTES[self.kind][name])

    def wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.kind,
            "stream": self.stream,
            "toxicity": self.toxicity,
            "attributes": ATTRIBUTES[self.kind] | self.attributes,
        }

    @classmethod
    def read(cls, wire: dict[str, Any]) -> "Toxic":
        """Parse the JSON of the control port. Raises ValueError."""
        attributes = {str(name): float(value) for name, value in (wire.get("attributes") or {}).items()}
        stream, toxicity = wire.get("stream", "downstream"), float(wire.get("toxicity", 1.0))
        return cls(str(wire.get("type", "")), stream, str(wire.get("name", "")), toxicity, attributes)


def late(toxics: list[Toxic], dice: random.Random) -> float:
    """The seconds by which to delay a chunk."""
    delays = [max(0.0, one["latency"] + dice.uniform(-1, 1) * one["jitter"]) for one in toxics if one.kind == "latency"]
    return sum(delays) / 1000


def pieces(chunk: bytes, toxics: list[Toxic], dice: random.Random) -> Iterator[tuple[bytes, float]]:
    """Split the chunk into pieces, each with the seconds to wait after it."""
    slicer = next((one for one in toxics if one.kind == "slicer"), None)
    rate = min((one["rate"] for one in toxics if one.kind == "bandwidth"), default=float("inf")) * 1000
    for piece in [chunk] if slicer is None else _slices(chunk, slicer, dice):
        pause = slicer["delay"] / 1_000_000 if slicer is not None else 0.0
        yield piece, pause + (len(piece) / rate if rate else 0.0)


def _slices(chunk: bytes, slicer: Toxic, dice: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(chunk):
        varied = slicer["average_size"] + dice.uniform(-1, 1) * slicer["size_variation"]
        size = max(1, round(varied))
        yield chunk[at : at + size]
        at += size


def closing_delay(toxics: list[Toxic]) -> float:
    return sum(one["delay"] for one in toxics if one.kind == "slow_close") / 1000
