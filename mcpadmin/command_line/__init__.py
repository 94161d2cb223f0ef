"""The command `mcpadmin`: calls through a running mcpadmin, and everything that manage.py does.

    program -> arguments -> verbs -> connecting, output, exit_status        call, list, read, prompt, watch
            -> managing                                                     up, and management commands
    streams: what both need in a pipeline

Verbs speak MCP to the agents' endpoint with the client of sessions/mcp and load no Django.
"""
