import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client

from mcpadmin import setup
from servers import limits
from servers.enums import AuditAction
from servers.models import AuditEvent
from tests.tools.prepared import DATABASE, ROOT, clean_environment, copy_database

pytestmark = pytest.mark.django_db
ADA = {"username": "ada", "email": "", "password1": "correct horse battery", "password2": "correct horse battery"}


@pytest.fixture(autouse=True)
def no_attempts_yet() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def path() -> str:
    return setup.link("")


def administrators() -> list[str]:
    return list(get_user_model().objects.filter(is_superuser=True).values_list("username", flat=True))


def test_the_link_creates_the_first_administrator_and_signs_them_in(client: Client) -> None:
    assert "Create the first administrator" in client.get(path()).content.decode()
    response = client.post(path(), ADA)
    assert (response.status_code, response["Location"]) == (302, "/")
    user = get_user_model().objects.get(username="ada")
    assert (user.is_superuser, user.is_staff, user.is_active) == (True, True, True)
    assert client.session["_auth_user_id"] == str(user.pk)
    events = AuditEvent.objects.exclude(action=AuditAction.SIGN_IN).order_by("seq")
    assert [(event.action, event.actor_name, event.ip) for event in events] == [
        (AuditAction.USER_CREATE, "ada", "127.0.0.1"),
        (AuditAction.ADMINISTRATOR_CREATE, "ada", "127.0.0.1"),
    ]


def test_the_password_is_hashed_with_argon2(client: Client, argon2: None) -> None:
    client.post(path(), ADA)
    assert get_user_model().objects.get(username="ada").password.startswith("argon2$argon2id$")


def test_a_session_planted_before_is_worth_nothing_afterwards(client: Client) -> None:
    client.session.save()
    planted = client.session.session_key
    client.post(path(), ADA)
    assert client.session.session_key != planted


def test_the_creation_is_audited_with_its_actor(client: Client) -> None:
    client.post(path(), ADA)
    event = AuditEvent.objects.get(action="account:administrator:create")
    assert (event.actor_name, event.subject, event.outcome) == ("ada", "ada", "ok")
    assert ADA["password1"] not in "".join(AuditEvent.objects.values_list("body", flat=True))


def test_a_used_link_sends_to_sign_in(client: Client) -> None:
    link = path()
    client.post(link, ADA)
    response = Client().get(link)
    assert response.status_code == 410
    assert "has been used" in response.content.decode()
    assert "/accounts/login/" in response.content.decode()


def test_a_short_password_is_marked_at_its_own_field(client: Client) -> None:
    refused = client.post(path(), ADA | {"password1": "short", "password2": "short"}).context["form"].errors
    assert set(refused) == {"password1"}
    assert "at least 10 characters" in " ".join(refused["password1"])


def test_two_passwords_that_differ_are_marked_at_the_second(client: Client) -> None:
    refused = client.post(path(), ADA | {"password2": "correct horse battery!"}).context["form"].errors
    assert set(refused) == {"password2"}


def test_before_the_set_up_the_sign_in_page_points_to_the_link(client: Client) -> None:
    page = client.get("/accounts/login/").content.decode()
    assert "Set up mcpadmin first" in page
    assert setup.COMMAND in page
    assert 'name="password"' not in page, "nobody could sign in here"
    client.post(path(), ADA)
    page = Client().get("/accounts/login/").content.decode()
    assert "Set up mcpadmin" not in page
    assert 'name="password"' in page


def test_people_without_an_administrator_can_still_sign_in(client: Client) -> None:
    get_user_model().objects.create_user("bob", password="correct horse battery")
    page = client.get("/accounts/login/").content.decode()
    assert setup.COMMAND in page
    assert 'name="password"' in page


def test_an_expired_link_says_how_to_get_a_new_one(client: Client) -> None:
    with patch.object(setup, "MAX_AGE_SECONDS", -1):
        response = client.get(path())
    assert response.status_code == 410
    assert "manage.py setup_link" in response.content.decode()


def test_the_command_that_the_pages_show_works_in_any_folder(tmp_path: Path) -> None:
    data = tmp_path / "data of mcpadmin"
    data.mkdir()
    copy_database(data / DATABASE)
    own = {"MCPADMIN_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    told = "import django; django.setup(); from mcpadmin import setup; print(setup.COMMAND)"
    shown = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, env=clean_environment(**own), capture_output=True, text=True, check=True
    )
    done = subprocess.run(
        ["sh", "-c", shown.stdout],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.match(r"http://127\.0\.0\.1:8000/setup/\S+/\n", done.stdout), done.stderr


def test_a_forged_link_tells_no_one_where_mcpadmin_lives_once_it_is_set_up(client: Client) -> None:
    client.post(path(), ADA)
    page = Client().get("/setup/guess/")
    assert page.status_code == 404
    assert "manage.py" not in page.content.decode()


def test_a_forged_link_opens_nothing(client: Client) -> None:
    forged = path()[:-6] + "AAAAA/"
    assert client.get(forged).status_code == 404
    assert client.post(forged, ADA).status_code == 404
    assert administrators() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password2": "another horse battery"}, "match"),
        ({"password1": "12345678901", "password2": "12345678901"}, "numeric"),
        ({"password1": "short", "password2": "short"}, "too short"),
        ({"username": "a b"}, "valid username"),
        ({"email": "nobody"}, "valid email"),
    ],
)
def test_bad_input_is_explained_and_creates_no_one(client: Client, change: dict[str, str], words: str) -> None:
    response = client.post(path(), ADA | change)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert administrators() == []


def test_attempts_are_limited_by_address(client: Client) -> None:
    statuses = [client.get("/setup/guess/").status_code for _ in range(limits.number("setup_attempts") + 1)]
    assert statuses == [404] * limits.number("setup_attempts") + [429]
    refused = client.post(path(), ADA)
    assert (refused.status_code, "Open the link again" in refused.content.decode()) == (429, True)
    assert administrators() == []


def test_a_form_without_csrf_token_is_refused() -> None:
    assert Client(enforce_csrf_checks=True).post(path(), ADA).status_code == 403
    assert administrators() == []


def test_an_inactive_administrator_does_not_close_the_road(client: Client) -> None:
    get_user_model().objects.create_superuser("gone", password="x", is_active=False)
    assert client.get(path()).status_code == 200


def test_the_page_is_never_cached_and_tells_no_other_site_its_address(client: Client) -> None:
    response = client.get(path())
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] in {"no-referrer", "same-origin"}


def test_the_command_prints_a_link_that_works(client: Client) -> None:
    out = StringIO()
    call_command("setup_link", stdout=out)
    printed = re.search(r"/setup/\S+", out.getvalue())
    assert printed is not None
    assert client.get(printed[0]).status_code == 200


def test_the_command_refuses_once_an_administrator_exists() -> None:
    get_user_model().objects.create_superuser("ada", password="x")
    with pytest.raises(CommandError, match="already exists"):
        call_command("setup_link")


@pytest.mark.django_db(transaction=True)
def test_of_two_at_the_same_moment_one_is_created_and_the_other_is_told() -> None:
    together = threading.Barrier(2)
    statuses: list[int] = []

    def post(name: str) -> None:
        client, link = Client(), path()
        together.wait(10)
        statuses.append(client.post(link, ADA | {"username": name}).status_code)
        connections.close_all()

    threads = [threading.Thread(target=post, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(statuses) == [302, 410]
    assert len(administrators()) == 1
