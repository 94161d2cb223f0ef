"""Topic `sessions`: the workers and their sessions. For reader threads only.

Each part of the page is a separate frame, so that an unchanged part is not sent again.
"""

from dataclasses import replace
from typing import Any

from django.template.loader import render_to_string

from sessions.connections import worker_board
from sessions.connections.worker_board import Board, WorkerCard
from sessions.live.frames import EVERYBODY, OTHERS, SEES_PERSONAL, Audience, Frame, encode


def frames() -> list[Frame]:
    """Frames with lines about personal sessions are only for viewers who see all of them."""
    board = worker_board.board()
    names = [str(card.worker.uid) for card in board.workers]
    listed = Frame(encode("sessions", None, "list", [{"workers": names}]), None, "list")
    if not worker_board.any_personal():
        return [listed, *_parts(board, EVERYBODY)]
    return [listed, *_parts(board, SEES_PERSONAL), *_parts(worker_board.board(personal=False), OTHERS)]


def _parts(board: Board, audience: Audience) -> list[Frame]:
    found = [frame for card in board.workers for frame in _of_worker(card)]
    found += [_part("unowned", "_unowned", board=board), _part("numbers", "_numbers", board=board)]
    return [replace(frame, audience=audience) for frame in found]


def _of_worker(card: WorkerCard) -> list[Frame]:
    name = f"worker.{card.worker.uid}"
    return [_part(f"{name}.{part}", f"_{part}", card=card) for part in ("head", "facts", "rows")]


def _part(name: str, template: str, **context: Any) -> Frame:
    html = render_to_string(f"sessions/{template}.html", context)
    return Frame(encode("sessions", None, "part", [{"part": name, "html": html}]), None, name)
