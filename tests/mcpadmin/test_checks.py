import sqlite3
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks

from mcpadmin.checks import TAG


def limits(**changed: int) -> dict[str, int]:
    return {**django_settings.LIMITS, **changed}


def found() -> set[str]:
    return {message.id for message in run_checks(tags=[TAG])}


def words() -> str:
    return "".join(f"{message.msg}{message.hint}" for message in run_checks(tags=[TAG]))


@pytest.fixture(autouse=True)
def keys(settings: object, tmp_path: Path) -> None:
    settings.KEYRING_FILE = tmp_path / "keyring.json"
    settings.KEYRING_FILE.write_text("{}")


def test_a_default_installation_has_nothing_to_complain_of() -> None:
    assert found() == set()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"REDIS_URL": "redis://cache.example:6379/0"}, {"mcpadmin.E001", "mcpadmin.W001"}),
        ({"REDIS_URL": "rediss://cache.example:6379/0"}, {"mcpadmin.E001"}),
        ({"REDIS_URL": "rediss://:word@cache.example:6379/0"}, set()),
        ({"REDIS_URL": "redis://127.0.0.1:6379/0"}, set()),
        ({"REDIS_URL": "cache.example:6379"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "10.0.0.5:6379"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "valkey://:word@cache.example:6379/0"}, {"mcpadmin.E018"}),
        ({"REDIS_URLS": {"REDIS_URL_WEB": "valkey://:word@cache.example"}}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "unix://"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "unix:///run/redis.sock?db=1"}, set()),
        ({"REDIS_URL": "redis://127.0.0.1:6379/0?health_check_interval=30"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "redis://127.0.0.1:6379?db=2"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "redis://127.0.0.1:6379/0?ssl_cert_reqs=none"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "unix:///run/redis.sock?db=1&client_name=x"}, {"mcpadmin.E018"}),
        ({"REDIS_URL": "rediss://:word@cache.example:6379/0?ssl_ca_certs=/srv/ca.pem&ssl_check_hostname=false"}, set()),
        ({"PUBLIC_URL": "http://127.0.0.1:8000/mcpadmin"}, {"mcpadmin.E002"}),
        ({"PUBLIC_URL": "http://127.0.0.1:8000?x=1"}, {"mcpadmin.E002"}),
        ({"PUBLIC_URL": "http://ada:word@127.0.0.1:8000"}, {"mcpadmin.E002"}),
        ({"PUBLIC_URL": "ftp://x"}, {"mcpadmin.E002"}),
        ({"PUBLIC_URL": "mcp.example.org"}, {"mcpadmin.E002"}),
        ({"DEBUG": True, "ALLOWED_HOSTS": ["mcp.lan"]}, {"mcpadmin.E003"}),
        ({"KEY_PROBLEM": "cannot write"}, {"mcpadmin.E004"}),
        ({"KEYRING_FILE": Path("/nowhere/keyring.json")}, {"mcpadmin.E005"}),
        ({"STALE_SECONDS": 4.0}, {"mcpadmin.E006"}),
        ({"REQUEST_SECONDS": 0.0}, {"mcpadmin.E017"}),
        ({"HEARTBEAT_SECONDS": 0.0}, {"mcpadmin.E017"}),
        ({"AGENT_REQUESTS_PER_SECOND": 0}, {"mcpadmin.E017"}),
        ({"AGENT_CALLS_IN_FLIGHT": 0}, {"mcpadmin.E017"}),
        ({"AGENT_PERSON_IN_FLIGHT": 0}, {"mcpadmin.E017"}),
        ({"OUTBOUND_PROXY": "proxy.example:3128"}, {"mcpadmin.E014"}),
        ({"OUTBOUND_PROXY": "https://proxy.example"}, {"mcpadmin.E014"}),
        ({"OUTBOUND_PROXY": "http://proxy.example:port"}, {"mcpadmin.E014"}),
        ({"OUTBOUND_PROXY": "http://proxy.example:3128?x=1"}, {"mcpadmin.E014"}),
        ({"ALLOWED_NETWORKS": ["10.0.0.0/8", "mcp.corp.example"]}, {"mcpadmin.E019"}),
        ({"ALLOWED_NETWORKS": ["10.0.0.0/8 192.168.0.0/16"]}, {"mcpadmin.E019"}),
        ({"ALLOWED_NETWORKS": ["https://10.1.0.5"]}, {"mcpadmin.E019"}),
        ({"ALLOWED_NETWORKS": ["10.0.0.0/8", "10.1.0.5:8080", "fd00::/8", "[fd00::5]:8080"]}, set()),
        ({"STDIO_HOSTS": ["https://mirror.example"]}, {"mcpadmin.E019"}),
        ({"STDIO_HOSTS": ["*.mirror.example", "10.0.0.5:8080"]}, set()),
        ({"ALLOWED_HOSTS": ["https://mcp.lan"]}, {"mcpadmin.E020"}),
        ({"ALLOWED_HOSTS": ["mcp.lan:8000"]}, {"mcpadmin.E020"}),
        ({"ALLOWED_HOSTS": ["mcp.lan", ".corp.example", "[fd00::5]", "*"]}, set()),
        ({"CSRF_TRUSTED_ORIGINS": ["https://mcp.lan", "mcp.corp.example"]}, {"mcpadmin.E020"}),
        ({"CSRF_TRUSTED_ORIGINS": ["https://mcp.lan", "https://mcp.corp.example/"]}, {"mcpadmin.E020"}),
        ({"CSRF_TRUSTED_ORIGINS": ["https://mcp.lan", "https://*.corp.example:8443"]}, set()),
        ({"WITNESSES": ["ftp://witness.example"]}, {"mcpadmin.E015"}),
        ({"WITNESSES": ["s3://store.example/bucket"]}, {"mcpadmin.E015"}),
        ({"WITNESSES": ["https://w.example/log?key=1", "https://w.example/log?key=2"]}, {"mcpadmin.E015"}),
        ({"CHECKPOINT_SECONDS": 0.0}, {"mcpadmin.E016"}),
        ({"OUTBOUND_PROXY": "http://user:word@proxy.example:3128"}, set()),
        ({"CELERY_ACCEPT_CONTENT": ["json", "pickle"]}, {"mcpadmin.E007"}),
        ({"CELERY_TASK_ACKS_LATE": True}, {"mcpadmin.E008"}),
        ({"TRUSTED_PROXIES": -1}, {"mcpadmin.E009"}),
        ({"DATABASE_CONNECTIONS": 9}, {"mcpadmin.E021"}),
        ({"LIMITS": limits(depth=0)}, {"mcpadmin.E010"}),
        ({"LIMITS": limits(depth=8)}, set()),
        ({"PUBLIC_URL": "http://mcp.lan:8000"}, {"mcpadmin.W002"}),
        ({"PUBLIC_URL": "https://mcp.example.org"}, {"mcpadmin.W003"}),
        ({"PUBLIC_URL": "https://mcp.example.org", "TRUSTED_PROXIES": 1}, set()),
        ({"WIRE_DAYS": 30.0}, {"mcpadmin.W004"}),
    ],
    ids=lambda value: str(value if isinstance(value, dict) else sorted(value)),  # set order varies
)
def test_each_unsafe_or_impossible_setting_is_named(settings: object, change: dict, expected: set[str]) -> None:
    for name, value in change.items():
        setattr(settings, name, value)
    assert found() == expected


def test_nothing_that_is_kept_may_be_written_where_files_are_removed(settings: object) -> None:
    own = settings.DATA_DIR
    for refused in (own / "exports", own / "archive" / ".." / "static" / "x"):
        settings.EXPORT_DIRECTORIES = ["/srv/audit", str(refused)]
        assert found() == {"mcpadmin.E022"}
    settings.EXPORT_DIRECTORIES = [str(own / "archive"), "/srv/exports"]
    assert found() == set()
    settings.CHECKPOINT_FILE = own / "exports" / "checkpoints.jsonl"
    assert found() == {"mcpadmin.E022"}
    assert "(MCPADMIN_CHECKPOINT_FILE) is in a folder that mcpadmin removes files from." in words()


def test_a_python_with_an_old_sqlite_needs_another_database(settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    assert "This Python has SQLite 3.34.1, but mcpadmin needs 3.35 or newer." in words()
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    assert found() == set()


def test_a_redis_without_a_password_is_a_warning_where_the_operator_allows_it(settings: object) -> None:
    settings.REDIS_URL = "rediss://cache.example:6379/0"
    (refused,) = run_checks(tags=[TAG])
    settings.REDIS_WITHOUT_PASSWORD = True
    (allowed,) = run_checks(tags=[TAG])
    assert (refused.id, allowed.id) == ("mcpadmin.E001", "mcpadmin.E001")
    assert refused.is_serious(), "`up` does not start"
    assert not allowed.is_serious()


def test_a_password_in_redis_url_is_not_repeated_in_the_message(settings: object) -> None:
    settings.REDIS_URL = "redis://user:hunter2hunter2@cache.example:6379/0"
    assert "hunter2" not in words()


def test_a_password_in_another_address_that_is_refused_is_not_repeated_either(settings: object) -> None:
    settings.REDIS_URL = "valkey://user:hunter2hunter2@cache.example:6379/0"
    settings.PUBLIC_URL = "https://user:hunter2hunter2@mcp.example.org"
    settings.TRUSTED_PROXIES = 1
    assert found() == {"mcpadmin.E002", "mcpadmin.E018"}
    assert "hunter2" not in words()


def test_no_part_of_a_password_of_a_proxy_or_witness_that_is_refused_is_repeated(settings: object) -> None:
    settings.OUTBOUND_PROXY = "http://user:hunt#er2@proxy.example:3128"
    settings.WITNESSES = ["https://w:hunt#er2@witness.example/x"]
    assert found() == {"mcpadmin.E014", "mcpadmin.E015"}
    assert "hunt" not in words()
