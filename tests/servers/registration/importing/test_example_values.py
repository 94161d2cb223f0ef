"""Placeholders that a README prints for the reader's own values are found. Ordinary values are left alone."""

import pytest

from servers.registration.importing.example_values import example_values, filled

# text: its placeholders
FLAGGED = {
    "<host>": ["<host>"],
    "https://<region>.api.example/mcp": ["<region>"],
    "--host=<your host>": ["<your host>"],
    "/path/to/file": ["/path/to/file"],
    "/absolute/path/to/dist/index.js": ["/absolute/path/to/dist/index.js"],
    r"C:\path\to\server.js": [r"C:\path\to\server.js"],
    "/Users/username/Desktop": ["/Users/username/Desktop"],
    "/Users/YOUR_USERNAME/x": ["/Users/YOUR_USERNAME/x"],
    "type=bind,src=/path/to/dir,dst=/projects": ["/path/to/dir"],
    "/path/to/dir:/projects": ["/path/to/dir"],
    "D:/path/to/x.jar;D:/path/to/lib/*": ["D:/path/to/x.jar", "D:/path/to/lib/*"],
    "your-company": ["your-company"],
    "https://your-company.wiki.example/wiki": ["your-company"],
    "https://yourcompany.wiki.example": ["yourcompany"],
    "your.email@company.com": ["your.email@company.com"],
    "YOUR_API_KEY": ["YOUR_API_KEY"],
    "--api-key=YOUR_KEY": ["YOUR_KEY"],
    "{{API_KEY}}": ["{{API_KEY}}"],
    "${{ secrets.TOKEN }}": ["${{ secrets.TOKEN }}"],
    "Bearer $API_TOKEN": ["$API_TOKEN"],
    r"%USERPROFILE%\x": ["%USERPROFILE%"],
    "sk-...": ["sk-..."],
    "sk-xxx": ["sk-xxx"],
    "ghp_xxxxxxxxxxxx": ["ghp_xxxxxxxxxxxx"],
    "xoxb-your-bot-token": ["xoxb-your-bot-token"],
    "ntn_****": ["ntn_****"],
    "xxx": ["xxx"],
    "https://xxx.base.example": ["xxx"],
    "postgresql://user:password@host:port/db": ["user:password", "host", "port"],
    "REPLACE_WITH_YOUR_KEY": ["REPLACE_WITH_YOUR_KEY"],
    "changeme": ["changeme"],
    "your-key-here": ["your-key-here"],
    '{"Authorization": "Bearer ntn_****", "V": "1"}': ["ntn_****"],
    "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx": ["xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"],
}
ORDINARY = [
    *("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/data", "/home/ada/data", "/home/user/data", "."),
    *("https://mcp.acme.example/mcp", "yourls-mcp", "@yourgpt/mcp", "xxl", "./...", "**/*.py", '{"a": 1}', '["a"]'),
    *("a<b", "a < b > c", "pa$$word", "$argon2id$v=19$m=65536", "US$100", "$schema", "[::1]", "http://[::1]:8080/mcp"),
    *("100%", "python3.11", "key=value", "https://user1:s3cr3t@db.example/x", "my-server", "example", "latest"),
    *("TODO.md", "path", "/path", "/data/path/file", "--path", "PATH", "/opt/full/backup", "/absolute", "axxxb"),
    *("README", "here", "user", "token", "Bearer abcdef123", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "--from"),
    *("git+https://git.acme.example/acme/x", "NODE_ENV=production", "http://localhost:8080/sse", "%20a%2Fb", "%d %s"),
    *("http://host.docker.internal:3000", "http://server1:3000/x", "a...b", "1.2.3", "{level} {message}", "neighbour"),
    *("yourself", "127.0.0.1:3000", "0x00", r"C:\Users\ada\x", "enter", "insert", "s3://bucket/key", "^[A-Z]+$"),
    *(
        "(?P<name>x)",
        "where",
        "http://there",
        "nowhere",
        "--header",
        "X-Api-Key",
        "name == 'x' && size > 3",
        "a@b.example",
    ),
    *("acme/s:1.2", "-Dx=true", "uvx", "jsr:@acme/s", "Etc/UTC", "00:11:22:33:44:55", "us-east-1", "T01234567", ""),
]


@pytest.mark.parametrize("text", FLAGGED)
def test_an_example_value_is_found(text: str) -> None:
    assert [one.text for one in example_values(text, url=text.startswith("http"))] == FLAGGED[text]


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_value_is_no_example_value(text: str) -> None:
    assert example_values(text, url=text.startswith("http")) == []


@pytest.mark.parametrize(
    "text",
    ["", "Bearer ", "my_key", "api-key", "API_TOKEN", "Bearer <token>", "token", "[your key]", "example-key", "..."],
)
def test_under_the_name_of_a_credential_more_words_are_examples(text: str) -> None:
    assert bool(example_values(text, secret=True)) is bool(text.strip() not in ("", "Bearer"))


@pytest.mark.parametrize("text", ["s3cr3t", "Bearer abc123", "ghp_0123456789abcdefABCDEF", "correct horse", "p@ss"])
def test_a_credential_is_no_example_value(text: str) -> None:
    assert example_values(text, secret=True) == []


def test_entered_values_replace_the_examples() -> None:
    assert filled("https://<a>.example/<b>?x=<a>", lambda one: {"a": "1"}.get(one.label)) == "https://1.example/<b>?x=1"


@pytest.mark.parametrize(
    "piece", ["/", "a-", "x", "<", "$A", "a/", "users/", "*", "a b.", "-x", "_", "your", "path/to/", "{{"]
)
def test_text_made_to_be_slow_ends(piece: str) -> None:
    """The test would hang if a pattern scanned the text repeatedly."""
    example_values(piece * (4_000 // len(piece)), secret=True, url=True)
    assert example_values(piece * 4_000, secret=True) == [] or len(piece) * 4_000 <= 4_000


@pytest.mark.parametrize("word", ["PUT", "REPLACE", "ENTER"])
def test_a_long_word_after_an_order_ends_and_is_none(word: str) -> None:
    """The test would hang if the parts of the word could be parted in more than one way."""
    assert example_values(f"{word}_{'A' * 60}b") == []
    assert [one.text for one in example_values(f"{word}_{'A' * 60}_")] == [f"{word}_{'A' * 60}_"]
