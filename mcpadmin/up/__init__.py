"""`manage.py up`: one supervisor for the embedded Valkey, the web server, the workers and beat.

    options -> ground (lock, port, keys) -> valkey -> migrate -> web | workers | beat -> set-up link, URL

Modules: `problems` (the one error type), `ground` (what must hold before anything starts), `lock`, `listener`,
`socket_path`, `valkey`, `database`, `assets`, `process` (spawn and reap), `readiness`, `parts` (what is run),
`supervisor` (keep, restart, stop), `guard` (cleans up after a SIGKILL of `up`), `output`.
"""
