"""The last 24 hours as points of an SVG line, and as a sentence that says the same. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

HOURS = 24
WIDTH, HEIGHT = 92, 22
_MARGIN = 2


@dataclass(frozen=True)
class Sparkline:
    """`points` for a polyline in a box of WIDTH x HEIGHT; `area` closes it at the bottom."""

    points: str
    total: int
    most: int

    @property
    def area(self) -> str:
        return f"0,{HEIGHT} {self.points} {WIDTH},{HEIGHT}"

    @property
    def words(self) -> str:
        if not self.total:
            return "No updates in the last 24 hours"
        noun = "update" if self.total == 1 else "updates"
        return f"{self.total:,} {noun} in the last 24 hours, at most {self.most:,} in one hour"


def sparkline(hours: Mapping[datetime, int], now: datetime) -> Sparkline:
    """`hours`: events by the beginning of their hour; missing hours count as zero."""
    newest = now.replace(minute=0, second=0, microsecond=0)
    counts = [hours.get(newest - timedelta(hours=back), 0) for back in range(HOURS - 1, -1, -1)]
    return Sparkline(_points(counts), sum(counts), max(counts))


def _points(counts: list[int]) -> str:
    most = max(counts) or 1
    step, room = WIDTH / (len(counts) - 1), HEIGHT - 2 * _MARGIN
    return " ".join(f"{n * step:.0f},{HEIGHT - _MARGIN - count / most * room:.1f}" for n, count in enumerate(counts))
