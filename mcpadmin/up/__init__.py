"""`manage.py up`: one supervisor for the embedded Valkey, the web processes, the workers and beat.

    options -> preflight (data directory, lock, listening socket) -> valkey | `manage.py prepare` -> web | workers | beat

- in the process of `up`, small and without Django: `options` (and `StartProblem`, which every failed start raises),
  `preflight`, `process` (spawn, read, reap one child; the output of `up`), `supervisor` (the parts, their restarts, the
  run)
- `valkey`: the command line of the embedded server and the path of its socket, which the settings of every process need
- in a child, with Django: `database` and `assets`, run by `manage.py prepare`; `database.worker_ended` in a web process
- in each part: `ready`, which announces to `up` that the part serves
- after a SIGKILL of `up`: its death signal kills every part; `orphan_guard`, a separate script, removes the files
"""
