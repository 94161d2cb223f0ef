"""stdio servers: a child process that exchanges one JSON-RPC message per line."""

from .confinement import Confinement, MachineConfinement, Tier, is_interface, overlaps
from .connect_gate import Host, Network
from .container import Runtime
from .lifetime import Isolation, isolation, prepare_loop
from .tiers import confines, has_view, stands_for_owners, user
from .transport import StdioTransport

__all__ = [
    "Confinement",
    "Host",
    "Isolation",
    "MachineConfinement",
    "Network",
    "Runtime",
    "StdioTransport",
    "Tier",
    "confines",
    "has_view",
    "is_interface",
    "isolation",
    "overlaps",
    "prepare_loop",
    "stands_for_owners",
    "user",
]
