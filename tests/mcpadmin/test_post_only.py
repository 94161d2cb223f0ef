"""An address that only takes forms says so to a person who opens it; programs get the bare status."""

from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
PAGE: dict[str, Any] = {"HTTP_ACCEPT": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def ada(admin_client: Client) -> Client:
    return admin_client


def test_a_person_reads_that_nothing_was_changed(ada: Client) -> None:
    answer = ada.get("/servers/test/", **PAGE)
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    page = answer.content.decode()
    assert "This address accepts only form submissions. Nothing was changed." in page
    assert "Overview" in page


@pytest.mark.parametrize(
    "header",
    [
        {"HTTP_ACCEPT": "*/*"},
        {"HTTP_ACCEPT": "application/json"},
        PAGE | {"HTTP_HX_REQUEST": "true"},
        PAGE | {"HTTP_X_REQUESTED_WITH": "XMLHttpRequest"},
    ],
)
def test_a_program_gets_the_status_alone(ada: Client, header: dict[str, Any]) -> None:
    answer = ada.get("/servers/test/", **header)
    assert (answer.status_code, answer.content) == (405, b"")


def test_the_api_keeps_its_own_answer(ada: Client) -> None:
    answer = ada.delete("/api/v1/servers", **PAGE)
    assert b"<html" not in answer.content
