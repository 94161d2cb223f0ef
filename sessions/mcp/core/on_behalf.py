"""A request that is made on behalf of a program, which is a client itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """`log_level`: of the lines that the agent wants. `capabilities`: what a modern server hears instead of ours; None:
    ours. With them the request is one exchange: input that the server requires is the result. `added`: parameters of a
    further exchange."""

    log_level: str | None = None
    capabilities: Mapping[str, Any] | None = None
    added: Mapping[str, Any] = field(default_factory=dict)
