"""Tasks that span features: heartbeats, dead workers, calls past their deadline, changed registrations."""
