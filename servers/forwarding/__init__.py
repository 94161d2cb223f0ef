"""Forwarding of all audit events to sinks: OpenTelemetry, syslog, HTTP. At least once, from a cursor in the sink's row"""
