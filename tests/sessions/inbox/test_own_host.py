"""A link to our own host is not clickable, because the browser would send our cookies with it on any port."""

import pytest
from django.test import Client

from sessions.enums import QuestionKind
from sessions.inbox.visit_address import read_address, shares_cookies
from tests.sessions.inbox.test_inbox_pages import a_question, ada, admin, text  # noqa: F401 -- fixtures


@pytest.mark.django_db(transaction=True)
def test_an_address_on_our_own_host_is_copied_and_not_opened(ada: Client) -> None:  # noqa: F811  a fixture by its name
    question = a_question({"message": "Sign in", "url": "https://testserver:9443/x"}, QuestionKind.URL)
    page = text(ada.get(f"/inbox/{question.uid}/"))
    assert "This link points to mcpadmin's own host" in page
    assert 'data-copy="https://testserver:9443/x"' in page
    assert "data-visit" not in page
    assert 'value="accept"' in page, "it may have been visited in a private window"


@pytest.mark.parametrize(
    ("url", "own_host", "shared"),
    [
        ("http://127.0.0.1:9000/a", "127.0.0.1:8000", True),
        ("https://Admin.Example.com./a", "admin.example.com", True),
        ("http://[::1]:9000/a", "[::1]:8000", True),
        ("http://localhost:9000/a", "127.0.0.1:8000", False),
        ("https://admin.example.com.evil.example/a", "admin.example.com", False),
    ],
    ids=["port", "spelling", "ipv6", "other name", "longer name"],
)
def test_hosts_are_compared_as_cookies_know_them(url: str, own_host: str, shared: bool) -> None:
    address = read_address(url)
    assert not address.refused
    assert shares_cookies(address, own_host) is shared
