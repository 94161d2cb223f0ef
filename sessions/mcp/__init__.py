"""An MCP client as a library: protocol core, OAuth, transports and client. It knows no Django and nothing of mcpadmin."""
