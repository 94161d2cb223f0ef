"""Detects growth: samples over time, and the median slope of all pairs of them (Theil-Sen)."""

from dataclasses import dataclass, field
from itertools import combinations
from statistics import median


def theil_sen(points: list[tuple[float, float]]) -> float:
    """Slope per second, robust against a few outliers. 0 for fewer than two points."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    return median(slopes) if slopes else 0.0


@dataclass
class Samples:
    #: name of a measure -> its (seconds, value) points
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, at: float, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((at, value))

    def slope(self, name: str, after: float) -> float:
        return theil_sen(self._since(name, after))

    def floor_slope(self, name: str, after: float, window: float = 60.0) -> float:
        """The slope of the lowest value in each window. Descriptors that are opened and closed all the time (the pooled
        sockets of calls) vary above it; those that are never closed raise it."""
        lowest: dict[int, tuple[float, float]] = {}
        for at, value in self._since(name, after):
            number = int(at // window)
            lowest[number] = min(lowest.get(number, (at, value)), (at, value), key=lambda point: point[1])
        return theil_sen(list(lowest.values()))

    def _since(self, name: str, after: float) -> list[tuple[float, float]]:
        return [point for point in self.points.get(name, []) if point[0] >= after]

    def span(self, name: str, after: float) -> str:
        """The first and last value as text."""
        values = [value for at, value in self.points.get(name, []) if at >= after]
        return f"{values[0]:.0f} to {values[-1]:.0f}" if values else "never measured"
