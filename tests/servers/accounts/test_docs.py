from pathlib import Path

from servers.accounts import catalog

PAGE = Path(__file__).resolve().parents[3] / "docs" / "users.md"


def test_the_table_of_permissions_is_the_one_that_is_enforced() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(catalog.PERMISSIONS)
    for row, permission in zip(rows, catalog.PERMISSIONS.values(), strict=True):
        assert row.startswith(f"| `{permission.codename}` | {permission.name} | {permission.allows}")
        assert permission.implies in row
        assert not permission.needs or f"*{catalog.names(permission.needs)}*" in row
