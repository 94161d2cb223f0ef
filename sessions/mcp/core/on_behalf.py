"""A request made on behalf of a program that is itself an MCP client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """`log_level`: the level of the log lines that the agent requested. `capabilities`: sent to a modern server instead
    of ours; None: ours. With them, the request is one exchange: if the server requires input, that is the result.
    `added`: parameters of a further exchange."""

    log_level: str | None = None
    capabilities: Mapping[str, Any] | None = None
    added: Mapping[str, Any] = field(default_factory=dict)
