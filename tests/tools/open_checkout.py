"""Tests in which other users run files of the checkout."""

import pytest

from tests.tools.prepared import ROOT


def require() -> None:
    """Skip where other users cannot get to it, as below a folder that `mktemp -d` makes."""
    for place in (ROOT, *ROOT.parents):
        if not place.stat().st_mode & 0o001:
            pytest.skip(f"other users cannot run this checkout, because they may not enter {place}")
