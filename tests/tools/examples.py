"""How many examples a generated test draws that needs more or fewer than Hypothesis' usual hundred."""

from hypothesis import settings


def examples(whole: int) -> int:
    """`whole` in a run of all tests, and in a short run the same share of it as of the usual hundred."""
    return whole * settings.default.max_examples // 100
