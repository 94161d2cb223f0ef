"""Each shape is found where it stands and nothing else is masked. The samples are made up, and put together here so that no
scanner takes this file for a leak."""

import string
import time

import pytest

from servers.privacy import detection
from servers.secret import MASK

LETTERS = (string.ascii_letters + string.digits) * 40
HEX = "0123456789abcdef" * 8
SAMPLES = {
    "ghp_" + LETTERS[:36]: "GitHub token",
    "github_pat_" + LETTERS[:82]: "GitHub token",
    "glpat-" + LETTERS[:20]: "GitLab token",
    "xox" + "b-123456789012-" + LETTERS[:24]: "Slack token",
    "AKIA" + "IOSFODNN7EXAMPLE": "AWS access key",
    "AIza" + LETTERS[:35]: "Google API key",
    "ya29." + LETTERS[:60]: "Google access token",
    "GOCSPX-" + LETTERS[:28]: "Google client secret",
    "sk_" + "live_" + LETTERS[:24]: "Stripe key",
    "whsec_" + LETTERS[:32]: "Webhook secret",
    "sk-ant-" + "api03-" + LETTERS[:80]: "Anthropic key",
    "sk-proj-" + LETTERS[:48]: "OpenAI key",
    "sk-" + LETTERS[:20] + "T3BlbkFJ" + LETTERS[:20]: "OpenAI key",
    "hf_" + LETTERS[:34]: "Hugging Face token",
    "mco_" + LETTERS[:12].lower() + "_" + LETTERS[:43]: "mcpadmin token",
    "npm_" + LETTERS[:36]: "npm token",
    "pypi-AgE" + LETTERS[:80]: "PyPI token",
    "SG." + LETTERS[:22] + "." + LETTERS[:43]: "SendGrid key",
    "dop_v1_" + HEX[:64]: "DigitalOcean token",
    "shpat_" + HEX[:32]: "Shopify token",
    "eyJ" + LETTERS[:30] + ".eyJ" + LETTERS[:60] + "." + LETTERS[:43]: "JSON Web Token",
}


@pytest.mark.parametrize("secret", SAMPLES)
def test_a_secret_of_each_shape_is_masked_and_the_words_around_it_stay(secret: str) -> None:
    assert detection.mask(f"use {secret}, please") == (f"use {MASK}, please", 1)
    assert SAMPLES[secret] in {shape.name for shape in detection.shapes_in(secret)}


def test_every_shape_has_a_sample_here() -> None:
    in_context = {"Private key", "Slack webhook", "AWS secret key", "Password in a URL", "Authorization header"}
    assert {shape.name for shape in detection.SHAPES} == set(SAMPLES.values()) | in_context


def test_of_a_url_only_the_password_is_masked() -> None:
    assert detection.mask("postgres://ann:s3cret!@db:5432/x") == (f"postgres://ann:{MASK}@db:5432/x", 1)
    assert detection.mask("https://example.com:8080/a@b?c=d:e@f") == ("https://example.com:8080/a@b?c=d:e@f", 0)


def test_of_a_private_key_only_its_armour_stays() -> None:
    body = "\n".join(["MII" + LETTERS[:61]] * 5)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    masked, count = detection.mask(f"before {key} after")
    assert count == 1
    assert "MII" not in masked
    assert masked.startswith("before -----BEGIN RSA")
    assert masked.endswith(" after")


def test_secrets_that_a_name_gives_away_are_masked() -> None:
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert detection.mask(f"aws_secret_access_key = {secret}") == (f"aws_secret_access_key = {MASK}", 1)
    assert detection.mask("Authorization: Bearer " + LETTERS[:40]) == (f"Authorization: Bearer {MASK}", 1)
    webhook = "https://hooks.slack.com/services/" + "T00000000/B00000000/" + LETTERS[:24]
    assert detection.mask(webhook) == (f"https://hooks.slack.com/services/{MASK}", 1)


AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("authorization: bearer ", LETTERS[:40], ""),
        ('{"authorization": "Bearer ', LETTERS[:40], '"}'),
        ('it logged {\\"Authorization\\": \\"Bearer ', LETTERS[:40], '\\"}'),
        ("GET / HTTP/1.1\\r\\nAuthorization: Bearer ", LETTERS[:40], "\\r\\nHost: x"),
        ("tokens:\\n", "ghp_" + LETTERS[:36], "\\nthat is all"),
        ('secretAccessKey: "', AWS_SECRET, '"'),
        ("aws_secret_access_key=", AWS_SECRET[:-1] + "/", "\n"),
        ('it logged {\\"SecretAccessKey\\": \\"', AWS_SECRET, '\\"}'),
        ("redis://app:", "one:two:three", "@db:6379/0"),
        ("redis://app:", "one@two", "@db"),
        ("https://ann:", "s3cret", "@example.com/?to=bob@example.com"),
        ("https://ann:", "s3cret", "@example.com?to=bob@example.com"),
    ],
)
def test_a_secret_is_found_in_its_context_however_that_is_written(before: str, secret: str, after: str) -> None:
    assert detection.mask(f"{before}{secret}{after}") == (f"{before}{MASK}{after}", 1)


def test_of_an_encrypted_private_key_nothing_but_its_armour_stays() -> None:
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,2AF25325A9B318F344B8391AFD767D6D"
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    body = "MII" + LETTERS[:61]
    assert detection.mask(f"{begin}\n{headers}\n\n{body}\n{end}") == (f"{begin}{MASK}{end}", 1)


def test_the_rest_of_a_private_key_whose_beginning_was_cut_off_is_masked() -> None:
    end = "-----END RSA PRIVATE KEY-----\nexit code 1"
    assert detection.mask(f"{LETTERS[:61]}\n{LETTERS[:40]}\n{end}") == (f"{MASK}{end}", 1)


@pytest.mark.parametrize(
    "text",
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "The skill sk-learn, ghp_short and AKIA alone are words.",
        "https://github.com/acme/repo/pull/5",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample ann@host",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert detection.mask(text) == (text, 0)


@pytest.mark.parametrize("literal", [literal for shape in detection.SHAPES for literal in shape.literals])
def test_hostile_repetitions_take_linear_time(literal: str) -> None:
    """Quadratic expressions would take minutes here, and the test's deadline would end it."""
    detection.mask(literal * 5_000)
    detection.mask(literal + "a" * 50_000)
    detection.mask((literal + "a") * 5_000)
    detection.mask(("-" + literal) * 5_000)


@pytest.mark.parametrize("beginning", ["", "eyJ" + LETTERS[:20] + "."])
def test_what_begins_like_a_token_again_and_again_is_read_once(beginning: str) -> None:
    began = time.process_time()
    text = beginning + "-eyJ" * 250_000
    assert detection.mask(text) == (text, 0)
    assert time.process_time() - began < 2, "it was read again from each beginning"


def test_a_token_is_found_behind_a_hyphen_and_behind_another_beginning() -> None:
    token = "eyJ" + LETTERS[:30] + ".eyJ" + LETTERS[:60] + "." + LETTERS[:43]
    assert detection.mask(f"session-{token}") == (f"session-{MASK}", 1)
    assert detection.mask(f"eyJ0eXAiOiJKV1Qi and {token}, {token}") == (f"eyJ0eXAiOiJKV1Qi and {MASK}, {MASK}", 2)
