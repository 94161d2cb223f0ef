"""The size of a fault run, and the report of its numbers.

FAULT_SCALE   1 is the full size (default); 0.05 runs a twentieth of each count, but never less than a useful minimum
FAULT_DATABASE  postgresql for a private cluster (see databases.py)
FAULT_SEED    of the random choices; printed, so that a run can be repeated
"""

import os
import random
import zlib
from dataclasses import dataclass, field

from tests.faults import databases


@dataclass
class Size:
    scale: float
    seed: int

    def count(self, full: int, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def seconds(self, full: float, least: float = 1.0) -> float:
        return max(least, full * self.scale)

    def promise(self, seconds: float) -> float:
        """The bound for a full run. A shortened run shares the machine, so its bound is five times longer and only
        catches hangs."""
        return seconds if self.scale >= 1 else 5 * seconds

    def dice(self, scene: str) -> random.Random:
        """The random choices of one scenario, independent of which other scenarios run."""
        return random.Random(zlib.crc32(f"{self.seed} {scene}".encode()))


FULL = Size(float(os.environ.get("FAULT_SCALE", "1")), int(os.environ.get("FAULT_SEED", "20261121")))
#: the size in `make test`
SHORT = Size(0.02, FULL.seed)


@dataclass
class Report:
    """The numbers of one scenario, printed at its end."""

    scene: str
    size: Size
    facts: dict[str, object] = field(default_factory=dict)

    def say(self, **facts: object) -> None:
        self.facts |= facts

    def print(self) -> None:
        words = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in self.facts.items())
        print(
            f"\n[{self.scene}] {databases.KIND}, scale {self.size.scale:g}, seed {self.size.seed}: {words}", flush=True
        )


def judge(found: tuple[list[str], Report]) -> None:
    """Print the numbers and fail with a list of the problems."""
    wrong, report = found
    report.print()
    assert not wrong, f"{len(wrong)} problems:\n" + "\n".join(wrong[:40])


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
