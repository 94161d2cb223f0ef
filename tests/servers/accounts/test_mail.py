"""Links by mail, through a mail server on a socket."""

import socket
import threading
from collections.abc import Iterator
from email import message_from_string
from typing import Any

import pytest

from servers.accounts import links, mail
from servers.accounts.links import Invitation
from servers.audit.record import SYSTEM

pytestmark = pytest.mark.django_db


class MailServer:
    """Takes one mail at a time over SMTP and keeps its text."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.mails: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rw", newline="") as lines:
                self._talk(lines)

    def _talk(self, lines: Any) -> None:
        def say(words: str) -> None:
            lines.write(words + "\r\n")
            lines.flush()

        say("220 ready")
        for line in lines:
            verb = line.split(" ")[0].strip().upper()
            if verb == "DATA":
                say("354 go on")
                self.mails.append("".join(iter(lines.readline, ".\r\n")))
            if verb == "QUIT":
                return say("221 bye")
            say("250 ok")


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    started = MailServer()
    settings.EMAIL_URL = f"smtp://127.0.0.1:{started.port}"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", started.port
    yield started
    started.listener.close()


def issued(email: str) -> links.IssuedLink:
    return links.invite(SYSTEM, None, Invitation("Nina", email))


def test_an_invitation_with_an_address_is_mailed_with_its_link(server: MailServer) -> None:
    link = issued("nina@example.com")
    assert mail.send(link, "https://mcp.example.com/link/abc/") == "Sent to nina@example.com."
    [text] = server.mails
    message = message_from_string(text)
    assert (message["To"], message["Subject"]) == ("nina@example.com", "Your invitation to mcpadmin")
    assert "https://mcp.example.com/link/abc/" in message.get_payload()


def test_a_mail_server_that_is_down_leaves_the_administrator_the_link(server: MailServer, settings: Any) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # never listens: connections are refused
        settings.EMAIL_PORT = silent.getsockname()[1]
        words = mail.send(issued("nina@example.com"), "https://mcp.example.com/link/abc/")
    assert words.startswith("The email to nina@example.com was not sent")
    assert "Copy the link" in words
    assert "abc" not in words
    assert server.mails == []


def test_nothing_is_mailed_without_an_address_or_a_mail_server(server: MailServer, settings: Any) -> None:
    assert mail.send(issued(""), "x") == ""
    settings.EMAIL_URL = ""
    assert mail.send(issued("nina@example.com"), "x") == ""
    assert server.mails == []
