"""Topic `sessions`: the workers and what each holds. In reader threads only.

Each part of the page is a frame of its own, so that what did not change is not sent again.
"""

from typing import Any

from django.template.loader import render_to_string

from sessions.consumers.frames import Frame, encode
from sessions.domain import worker_board
from sessions.domain.worker_board import WorkerCard


def frames() -> list[Frame]:
    board = worker_board.board()
    names = [str(card.worker.uid) for card in board.workers]
    found = [Frame(encode("sessions", None, "list", [{"workers": names}]), None, "list")]
    for card in board.workers:
        found += _of_worker(card)
    return [*found, _part("unowned", "_unowned", board=board), _part("numbers", "_numbers", board=board)]


def _of_worker(card: WorkerCard) -> list[Frame]:
    name = f"worker.{card.worker.uid}"
    return [_part(f"{name}.{part}", f"_{part}", card=card) for part in ("head", "facts", "rows")]


def _part(name: str, template: str, **context: Any) -> Frame:
    html = render_to_string(f"sessions/workers/{template}.html", context)
    return Frame(encode("sessions", None, "part", [{"part": name, "html": html}]), None, name)
