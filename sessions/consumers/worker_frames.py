"""Topic `sessions`: the workers and what each holds. In reader threads only.

Each part of the page is a frame of its own, so that what did not change is not sent again.
"""

from dataclasses import replace
from typing import Any

from django.template.loader import render_to_string

from sessions.consumers.frames import EVERYBODY, OTHERS, SEERS, Audience, Frame, encode
from sessions.domain import worker_board
from sessions.domain.worker_board import Board, WorkerCard


def frames() -> list[Frame]:
    """The lines of people's own sessions are only for whoever sees them all."""
    board = worker_board.board()
    names = [str(card.worker.uid) for card in board.workers]
    listed = Frame(encode("sessions", None, "list", [{"workers": names}]), None, "list")
    if not worker_board.any_personal():
        return [listed, *_parts(board, EVERYBODY)]
    return [listed, *_parts(board, SEERS), *_parts(worker_board.board(personal=False), OTHERS)]


def _parts(board: Board, audience: Audience) -> list[Frame]:
    found = [frame for card in board.workers for frame in _of_worker(card)]
    found += [_part("unowned", "_unowned", board=board), _part("numbers", "_numbers", board=board)]
    return [replace(frame, audience=audience) for frame in found]


def _of_worker(card: WorkerCard) -> list[Frame]:
    name = f"worker.{card.worker.uid}"
    return [_part(f"{name}.{part}", f"_{part}", card=card) for part in ("head", "facts", "rows")]


def _part(name: str, template: str, **context: Any) -> Frame:
    html = render_to_string(f"sessions/workers/{template}.html", context)
    return Frame(encode("sessions", None, "part", [{"part": name, "html": html}]), None, name)
