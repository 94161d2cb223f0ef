"""Whether something grows: samples over time, and the slope that half of all pairs of them exceed (Theil-Sen)."""

from dataclasses import dataclass, field
from itertools import combinations
from statistics import median


def theil_sen(points: list[tuple[float, float]]) -> float:
    """Per second. A few wild samples change nothing; fewer than two have no slope."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    return median(slopes) if slopes else 0.0


@dataclass
class Samples:
    #: name of a measure to its (seconds, value)
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, at: float, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((at, value))

    def slope(self, name: str, after: float) -> float:
        return theil_sen([point for point in self.points.get(name, []) if point[0] >= after])

    def span(self, name: str, after: float) -> str:
        """First and last value in words."""
        values = [value for at, value in self.points.get(name, []) if at >= after]
        return f"{values[0]:.0f} to {values[-1]:.0f}" if values else "never measured"
