"""Tasks that span features: heartbeats, dead workers, calls past their deadline, changed registrations. The job
*Housekeeping* is in `sessions/tasks.py`, which may import every feature."""
