"""`manage.py up`: one supervisor for the embedded Valkey, the web processes and the workers.

    options -> preflight (data directory, lock, listening socket) -> valkey | `manage.py prepare` -> web | workers

The last two load their code during the preparation and wait for its end before they do anything (`ready`); only a first
start, which has no static files yet, goes strictly in this order.

- before anything: `unprivileged`, which gives root up for good, and `init`, for the first process of a container
- in the process of `up`, small and without Django: `options` (and `StartProblem`, which every failed start raises),
  `preflight`, `process` (spawn, read, reap one child; the output of `up`), `supervisor` (the parts, their restarts, the
  run)
- `valkey`: the command line of the embedded server and the path of its socket, which the settings of every process need
- in a child, with Django: `database` and `assets`, run by `manage.py prepare`
- in a web process: `ended_worker`, which records that a worker ended
- in each part: `ready`, which waits for the preparation and announces to `up` that the part serves
- after a SIGKILL of `up`: its death signal kills every part; `orphan_guard`, a separate script, removes the files
"""
