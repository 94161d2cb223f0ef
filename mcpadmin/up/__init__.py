"""`manage.py up`: one supervisor for the embedded Valkey, the web server, the workers and beat.

    options -> ground, lock, listener -> valkey -> database | assets -> web | workers | beat -> set-up link, URL

- before anything starts: `ground`, `lock`, `listener`, `socket_path`; what fails there is a `problems.StartProblem`
- what is run: `parts` (command lines), `valkey`, `readiness` (asked from outside), `ready` (said by the part itself)
- how it is kept: `process` (spawn, reap) < `child` (one process) < `keeper` (one part) < `family` (all) < `supervisor`
- after a SIGKILL of `up`: every part dies by its death signal; `guard` (talked to by `sentry`) removes the files
"""
