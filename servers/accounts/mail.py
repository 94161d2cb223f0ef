"""Email with a link, if the operator configured a mail server. Without one, the administrator passes the link on."""

import smtplib

import structlog
from django.conf import settings
from django.core.mail import send_mail

from servers.accounts.links import IssuedLink
from servers.enums import LinkPurpose

log = structlog.get_logger("mcpadmin.mail")

_SUBJECTS = {LinkPurpose.INVITATION: "Your invitation to {}", LinkPurpose.PASSWORD: "Set a new password for {}"}
_WORDS = {
    LinkPurpose.INVITATION: "{by} invited you to {instance}. Open this link to choose a username and a password:",
    LinkPurpose.PASSWORD: "{by} created a link for you to set a new password for {instance}:",
}


def configured() -> bool:
    return bool(settings.EMAIL_URL)


def send(issued: IssuedLink, url: str) -> str:
    """Return what to tell the administrator, "" if no email is sent. Waits for the mail server up to EMAIL_TIMEOUT."""
    link = issued.link
    if not (configured() and link.email):
        return ""
    purpose = LinkPurpose(link.purpose)
    instance = settings.INSTANCE_NAME
    body = "\n\n".join(
        (
            _WORDS[purpose].format(by=link.issued_by_name, instance=instance),
            url,
            f"It works once, until {link.expires_at:%Y-%m-%d %H:%M} UTC.",
        )
    )
    try:
        send_mail(_SUBJECTS[purpose].format(instance), body, None, [link.email])
    except (OSError, smtplib.SMTPException) as problem:
        log.warning("email was not sent", problem=type(problem).__name__)
        return f"The email to {link.email} was not sent ({type(problem).__name__}). Copy the link instead."
    return f"Sent to {link.email}."
