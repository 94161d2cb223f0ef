"""Pages are sent compressed, except those that show a secret."""

import gzip
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

pytestmark = pytest.mark.django_db
GZIP = {"Accept-Encoding": "gzip, deflate, br"}


@pytest.fixture
def ada(client: Client, db: None) -> Client:
    client.force_login(get_user_model().objects.create_superuser("ada", password="correct horse battery"))
    return client


def encoding(answer: Any) -> str:
    return str(answer.headers.get("Content-Encoding", ""))


def test_a_page_is_compressed_for_browsers_that_take_it(ada: Client) -> None:
    plain, packed = ada.get("/servers/"), ada.get("/servers/", headers=GZIP)
    assert (encoding(plain), encoding(packed)) == ("", "gzip")
    assert b"<h1>Servers</h1>" in gzip.decompress(packed.content)
    assert len(packed.content) < len(plain.content) / 3
    assert "Accept-Encoding" in packed.headers["Vary"]


def test_the_same_page_has_another_length_each_time(ada: Client) -> None:
    assert len({len(ada.get("/account/", headers=GZIP).content) for _ in range(8)}) > 1


def test_what_shows_a_secret_is_not_compressed(ada: Client) -> None:
    invited = ada.post("/users/invite/", {"name": "Nina"}, headers=GZIP)
    assert b"/link/" in invited.content
    assert encoding(invited) == ""
    for address in ("/link/no-such-token/", "/setup/no-such-token/"):
        assert encoding(ada.get(address, headers=GZIP)) == ""


def test_only_pages_are_compressed(ada: Client) -> None:
    assert encoding(ada.get("/palette/?q=e", headers=GZIP)) == ""
