from pathlib import Path

from servers.accounts import catalog

PAGE = Path(__file__).resolve().parents[3] / "docs" / "users.md"


def test_the_table_of_rights_is_the_one_that_is_enforced() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(catalog.RIGHTS)
    for row, right in zip(rows, catalog.RIGHTS.values(), strict=True):
        assert row.startswith(f"| `{right.codename}` | {right.name} | {right.allows}")
        assert right.implies in row
        assert not right.needs or f"*{catalog.names(right.needs)}*" in row
