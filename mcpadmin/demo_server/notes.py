"""The notes that the demo server keeps in memory: searched, read and forgotten."""

import threading
from typing import NamedTuple

TAGS = ("work", "travel", "kitchen", "garden")


class Note(NamedTuple):
    name: str
    title: str
    created: str  # ISO date
    tags: tuple[str, ...]
    text: str


FIRST_NOTES = (
    Note("sourdough", "Sourdough", "2025-03-02", ("kitchen",), "Feed the starter in the evening, bake at noon."),
    Note("tomatoes", "Tomatoes", "2025-05-11", ("garden",), "Plant deep, water low, pinch the side shoots."),
    Note("lisbon", "Lisbon", "2025-06-20", ("travel",), "Tram 28 before nine, then walk down through Alfama."),
    Note("standup", "Stand-up", "2025-09-01", ("work",), "Yesterday, today, what is in the way. Nothing else."),
    Note("compost", "Compost", "2025-10-14", ("garden", "kitchen"), "Two parts brown, one part green, turn it weekly."),
    Note(
        "night-train", "Night train", "2026-01-09", ("travel", "work"), "Earplugs, power bank, the early meeting moved."
    ),
)


class Store:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes = {note.name: note for note in FIRST_NOTES}

    def all(self) -> list[Note]:
        with self._lock:
            return list(self._notes.values())

    def get(self, name: str) -> Note | None:
        with self._lock:
            return self._notes.get(name)

    def forget(self, tag: str) -> list[str]:
        """Remove every note with this tag; returns their names."""
        with self._lock:
            names = [note.name for note in self._notes.values() if tag in note.tags]
            for name in names:
                del self._notes[name]
            return names


def matches(note: Note, words: str, tags: list[str], after: str, before: str) -> bool:
    """Every word occurs, one of the tags is there (or none is asked), and the date lies in the span (or "")."""
    haystack = f"{note.title} {note.text}".lower()
    return (
        all(word in haystack for word in words.lower().split())
        and (not tags or bool(set(tags) & set(note.tags)))
        and (not after or note.created >= after)
        and (not before or note.created <= before)
    )
