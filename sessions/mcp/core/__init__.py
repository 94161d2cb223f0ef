"""The MCP state machine: JSON-RPC, revisions, capabilities, opening, tasks. Standard library only, no I/O, no clock."""
