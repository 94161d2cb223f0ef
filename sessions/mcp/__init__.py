"""An MCP client as a library: protocol core, OAuth, transports and client. It uses neither Django nor the rest of
mcpadmin."""
