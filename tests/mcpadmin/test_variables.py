"""How environment variables are parsed, and the errors for invalid values."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcpadmin import settings as product_settings
from mcpadmin.variables import Environment, in_host_header
from tests.tools.prepared import ROOT, clean_environment


def environment(**variables: str) -> Environment:
    env = Environment()
    env.ENVIRON = variables
    return env


@pytest.mark.parametrize("text", ["10m", "30s", "1,000", "1e", "nan", "inf", "-1", "zehn"])
def test_what_is_no_number_is_refused_with_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^MCPADMIN_INBOX_SECONDS is {text!r}"):
        environment(MCPADMIN_INBOX_SECONDS=text).float("MCPADMIN_INBOX_SECONDS", default=600.0)
    with pytest.raises(ImproperlyConfigured, match=rf"^MCPADMIN_INBOX_OPEN is {text!r}"):
        environment(MCPADMIN_INBOX_OPEN=text).int("MCPADMIN_INBOX_OPEN", default=4)


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), (" 30 ", 30.0), ("1e3", 1000.0), ("0", 0.0)])
def test_a_number_is_read_as_it_is_written(text: str, value: float) -> None:
    assert environment(N=text).float("N", default=7.0) == value


def test_a_word_that_is_neither_yes_nor_no_is_refused() -> None:
    env = environment(A="Yes", B=" off ", C="enabled")
    assert (env.bool("A", default=False), env.bool("B", default=True)) == (True, False)
    with pytest.raises(ImproperlyConfigured, match="C is 'enabled', but must be true or false"):
        env.bool("C", default=False)


def test_a_value_that_begins_with_a_dollar_sign_is_itself_and_no_name_of_a_variable() -> None:
    env = environment(MCPADMIN_SECRET_KEY="$ecret#1", ecret="other")
    assert env.str("MCPADMIN_SECRET_KEY", default="") == "$ecret#1"
    assert set(env.read) == {"MCPADMIN_SECRET_KEY"}


@pytest.mark.parametrize(("kind", "default"), [("str", "auto"), ("int", 4), ("float", 1.5), ("bool", True)])
def test_a_variable_without_a_value_counts_as_not_set(kind: str, default: Any) -> None:
    env = environment(EMPTY="")
    assert getattr(env, kind)("EMPTY", default=default) == default
    assert env.read["EMPTY"].given is False


def test_an_empty_list_is_a_list_of_nothing_and_blanks_around_items_do_not_count() -> None:
    env = environment(EMPTY="", HOSTS="a.example, b.example,")
    assert env.list("EMPTY", default=["MCP_*"]) == []
    assert env.list("HOSTS", default=[]) == ["a.example", "b.example"]
    assert env.list("ABSENT", default=["MCP_*"]) == ["MCP_*"]


def test_a_relative_path_is_refused_because_each_command_would_mean_another_file() -> None:
    env = environment(RING="keyring.json", KEY="/srv/key.json", FOLDERS="/srv/a, b")
    with pytest.raises(ImproperlyConfigured, match=r"RING is 'keyring\.json', but must be an absolute path"):
        env.file("RING", default=Path("/srv/keyring.json"))
    with pytest.raises(ImproperlyConfigured, match="FOLDERS is 'b', but must be an absolute path"):
        env.folders("FOLDERS")
    assert env.file("KEY", default=Path("/srv/other.json")) == Path("/srv/key.json")
    assert (env.file("ABSENT", default=Path("/srv/x")), env.folders("ABSENT", "/run")) == (Path("/srv/x"), ["/run"])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("DATABASE_URL", lambda env: env.database("DATABASE_URL", default={})),
        ("REDIS_URL", lambda env: env.address("REDIS_URL")),
        ("MCPADMIN_EMAIL_URL", lambda env: env.mail("MCPADMIN_EMAIL_URL")),
    ],
)
def test_no_part_of_a_password_is_quoted_from_an_address_that_cannot_be_read(name: str, read: Any) -> None:
    scheme = {"DATABASE_URL": "postgres", "REDIS_URL": "redis"}.get(name, "smtp+tls")
    with pytest.raises(ImproperlyConfigured, match=f"^{name} is not a valid URL.*%2F") as raised:
        read(environment(**{name: f"{scheme}://user:hunter2/hunter3@host:5432/db"}))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert "hunter" not in str(raised.value)


def test_a_password_with_encoded_characters_is_read() -> None:
    found = environment(DATABASE_URL="postgres://user:a%2Fb%23c@host:5432/db").database("DATABASE_URL", default={})
    assert (found["PASSWORD"], found["HOST"], found["PORT"]) == ("a/b#c", "host", 5432)


def test_a_connection_to_postgresql_does_not_wait_for_a_dead_server_and_its_address_may_say_otherwise(
    tmp_path: Path,
) -> None:
    url = "postgres://user@host/db?tcp_user_timeout=30000&sslmode=require"
    env = clean_environment(MCPADMIN_DATA_DIR=str(tmp_path), DATABASE_URL=url, MCPADMIN_DATABASE_CONNECTIONS="12")
    said = "import json; from mcpadmin import settings; print(json.dumps(settings.DATABASES['default']['OPTIONS'], default=str))"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["tcp_user_timeout"], found["sslmode"], found["connect_timeout"]) == (30000, "require", 5)
    assert found["keepalives_idle"] + found["keepalives_interval"] * found["keepalives_count"] <= 25
    assert found["pool"]["timeout"] <= found["pool"]["reconnect_timeout"] <= 10
    assert found["pool"]["max_size"] == 12
    assert "PooledConnection" in found["pool"]["connection_class"]


@pytest.mark.parametrize("url", ["mysql://user:hunter2@host/db", "sqlite:////srv/mcpadmin.sqlite3", "sqlite:///x.db"])
def test_a_database_of_another_kind_is_refused(url: str) -> None:
    """SQLite by its URL would lack the settings that the audit log needs."""
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL must begin with postgres://"):
        environment(DATABASE_URL=url).database("DATABASE_URL", default={})


def test_a_mail_server_of_another_kind_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="MCPADMIN_EMAIL_URL must begin with"):
        environment(MCPADMIN_EMAIL_URL="mail.example.org:587").mail("MCPADMIN_EMAIL_URL")


def test_one_of_some_words_is_read_in_any_case_and_another_one_is_refused() -> None:
    env = environment(LEVEL="debug", FORMAT="yaml", EMPTY="")
    assert env.choice("LEVEL", "INFO", "DEBUG") == "DEBUG"
    assert env.choice("EMPTY", "INFO", "DEBUG") == "INFO"
    with pytest.raises(ImproperlyConfigured, match="FORMAT is 'yaml', but must be one of auto, plain, json"):
        env.choice("FORMAT", "auto", "plain", "json")


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("::1", "[::1]"),
        ("[FD00:0:0::5]", "[fd00::5]"),
        ("10.0.0.5", "10.0.0.5"),
        ("mcp.example.org", "mcp.example.org"),
    ],
)
def test_an_address_of_ipv6_is_served_as_requests_name_it(name: str, host: str) -> None:
    assert in_host_header(name) == host


def test_the_loopback_address_of_ipv6_is_served() -> None:
    assert "[::1]" in product_settings.ALLOWED_HOSTS


def test_a_key_file_elsewhere_that_cannot_be_created_is_named_and_not_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "keys").touch()
    own = {
        "MCPADMIN_DATA_DIR": str(tmp_path / "data"),
        "MCPADMIN_CHECKPOINT_KEY_FILE": str(tmp_path / "keys" / "ck.json"),
    }
    shown = [sys.executable, "-c", "from mcpadmin import settings; print(settings.KEY_PROBLEM)"]
    done = subprocess.run(shown, cwd=ROOT, env=clean_environment(**own), capture_output=True, text=True, check=True)
    assert done.stdout == f"a key file cannot be read or created (File exists: {tmp_path}/keys)\n"


def test_a_command_says_in_one_line_which_variable_is_wrong(tmp_path: Path) -> None:
    own = {"MCPADMIN_DATA_DIR": str(tmp_path), "MCPADMIN_TRUSTED_PROXIES": "two"}
    words = [sys.executable, "manage.py", "users", "list"]
    done = subprocess.run(words, cwd=ROOT, env=clean_environment(**own), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "mcpadmin cannot run: MCPADMIN_TRUSTED_PROXIES is 'two', which is not a whole number. Correct it, or unset it to use the default."
    ]
