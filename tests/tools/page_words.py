"""Finds page texts that read as translated and suggests better ones: the check `words` of `make check`.

python tests/tools/page_words.py [files]
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    ("templates", "*.html"),
    ("static/js", "*.js"),
    *((name, "*.py") for name in ("mcpadmin", "servers", "sessions")),
)
#: never shown on a page of ours: output of tools, labels in old migrations
SKIPPED = ("migrations", "demo_server", "vendoring")

#: regular expression -> what to write
BETTER: dict[str, str] = {
    r"\bFirst reading\b|· read now\b": "Loaded just now",
    r"\bNo changes · read\b": "Unchanged, checked 5 min ago",
    r"\bCached\s*<": "Read 5 min ago",
    r"\bNot succeeded\b|\bdid not succeed\b": "Failed",
    r"\banother look\b": "1 invalid argument",
    r"\bNot allowed here\b|\bis allowed here\b": "say what is not allowed: No properties are allowed.",
    r"\bif it shall be\b": "To send an empty string, tick …",
    r"\bWaiting before the next try\b|\bNext try\b|\bTry \d": "Retrying in 1 s (attempt 5)",
    r"\bBreaker open\b": "Failing repeatedly: retrying once a minute until it connects.",
    r"\bWhat is known\b": "Details",
    r"\bMay be sent until\b": "Send deadline",
    r"\bPlaced\b": "Requested",
    r"\bIts call\b": "View call",
    r"\band worse\b": "Debug and above",
    r"\b[Aa]ll but\b": "All except completions",
    r"\bWhat depends on it\b": "Impact",
    r"\bKeep it\b": "Cancel",
    r"\bQuestions of the server\b|\bquestions of servers\b|\bquestion of the server\b": "Server requests",
    r"\bWhat it wishes\b": "Model preferences",
    r"\bWhat (?!else\b)\S+ asks?(?:ed)?\b|\bWhat servers ask\b": "Request from “everything”",
    r"\basks for a model's answer\b": "Sampling request from “everything”",
    r"\basks you to open an address\b|\bpage to visit\b|\baddress to visit\b": "“everything” wants you to open a link",
    r"\bWhoever\b|\bwhoever\b": "Requests from servers that need a person. The first answer wins.",
    r"\bnobody decided\b": "Dismiss without answering; the server may ask again.",
    r">\s*Over\s*<": "Closed",
    r"\bTaken by\b": "Assigned to",
    r"\bCalled by\b": "User",
    r">\s*Asked\s*<": "Received",
    r"\bNobody told\b|\bNobody tells\b|\bNobody has told\b": "Not listening from X to Y; changes in that time may be missing.",
    r"\btells? of changes\b": "Subscribed; listening for updates.",
    r"\bday and night\b": "keeps listening and stores every version",
    r"\brest here\b|\bsealed at once\b|\bis sealed\b": "Secrets are stored encrypted",
    r"\bNo secret leaves\b": "Secrets are exported as placeholders",
    r"\ban own\b|\bno own\b|\b[Oo]wn identity (?:begun|given up)\b": "your own credential; no personal identity on this server",
    r"\bWhat the import would do\b": "Import preview",
    r"\bWhat became of\b": "Import result",
    r"\bHere already, differs\b": "Exists with differences",
    r"\b[Ww]hole path\b": "Absolute path",
    r"\bdirectory of its own\b": "Leave empty to use a private directory.",
    r"\bIn addresses;": "Used in URLs. Generated from the name if empty.",
    r"\bclosed again when idle\b": "Keep connected, connect on first call, or disconnect when idle.",
    r">\s*In words\s*<": "Details",
    r"\bone line with a count\b": "Repeats are grouped.",
    r"\beverything is saved\b": "Saved.",
    r"\bNot verified in this sign-in\b": "Not verified this session",
    r"\bThe chain (?:holds|does not hold)\b": "No tampering found; the hash chain is broken here",
    r"\bThe hash matches and follows\b": "Hash valid, follows #817",
    r"\bYou may not\b|\bYou may see that\b": "You don't have permission to …",
    r"\bThe form is too old\b": "This page is out of date",
    r"\bmcpadmin made a mistake\b": "Something went wrong",
    r"\bNothing of it\b": "No preview",
    r"\bThe text goes on\b": "Truncated, download the full text.",
    r"\bThe answer did not arrive\b": "No confirmation received. Check the calls on the right before running it again.",
    r"\bnever repeated by mcpadmin\b": "check the server before running it again",
    r"\bthese went last\b": "Recently removed",
    r"\bof late\b": "recently",
    r"\beasier to keep than a puzzle\b": "use a passphrase",
    r"\bCredential blanked\b|\bthe server moved\b": "Credential removed: server address changed",
    r"\bSign-in to a server\b": "Server sign-in started",
    r"\bQuestion (?:taken|received|answered|ended)\b": "Server request assigned",
    r"\bare found out\b": "Transport, era and revision are detected.",
    r"\bworkers that carry it\b": "Only workers with this label connect to this server.",
    r"\bHeld by\b": "Worker",
    r"\bHow it was decided\b": "Detection",
    r"\bthe server's own\b(?!\s+(?:log|URL|code))": "The text on this form comes from the server.",
    r"\bis told\b|\bwas told\b|\bNot told\b|\bTold to\b": "is notified; delivered to the server",
    r"\b[Ss]omebody\b": "someone",
    r"\banew\b": "again",
    r"\bby itself\b(?! so)": "automatically",
    r"\bmeanwhile\b": "has been changed",
    r"\bThis is no [a-z]|\bis no (?:URL|URI|header name|variable name|https? address)\b": "This is not a …; Invalid URL",
    r"\b[Tt]ime-outs?\b": "timeout",
    r"\b[Oo]ne a line\b": "one per line",
    r"(?<!\w)Empty: (?!the server\b)": "Leave empty to …",
    r">\s*(?:Who|Way in)\s*<|\bWhy it asks\b": "User; Source; Reason",
    r"\bother clients pass over\b|\b[Ww]ith what only\b": "name what is in it; other clients ignore it",
    r"\bThere is no such\b": "This call does not exist.",
    r"\b[Nn]obody\b": "no one",
    r"\b[Bb]y turns\b": "alternately",
    r"\bof theirs\b": "their",
    r"\b[Ii]n vain\b": "without a response, without effect",
    r"\b[Ss]hall\b": "must, will",
}
_ANY_RULE = re.compile("|".join(BETTER), re.MULTILINE)  # nearly no text meets one
_RULES = [(re.compile(pattern, re.MULTILINE), words) for pattern, words in BETTER.items()]
_CLASS = re.compile(r"^ *class ((?:[A-Z][a-z]+){2,})\b", re.MULTILINE)
_JS_STRING = re.compile(r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`")


def refused(text: str) -> Iterator[tuple[str, str]]:
    """Each phrase of `text` that reads as translated, with what to write instead."""
    for pattern, words in _RULES if _ANY_RULE.search(text) else ():
        if found := pattern.search(text):
            yield found.group().strip(" <>\n"), words
    if " " in text and (found := _class_names().search(text)):  # a rename of a class once reached a sentence
        yield found.group(), "words for it, not the name of a class"


@cache
def _class_names() -> re.Pattern[str]:
    """Names of our classes, of two words or more."""
    texts = [path.read_text() for path in files() if path.suffix == ".py"]
    several = sorted({name for text in texts for name in _CLASS.findall(text)})
    return re.compile(rf"(?<![{{\w.\[])(?<!\| )(?:{'|'.join(several)})(?![\w(\]]| \|)")  # no types such as "A | None"


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    if path.suffix == ".py":
        yield from _strings(list(ast.walk(ast.parse(text))))
    elif path.suffix == ".js":
        for line, found in _matches(_JS_STRING, _blanked(r"/\*.*?\*/|(?<![:'\"`])//[^\n]*", text)):
            yield line, next(filter(None, found.groups()), "")
    else:
        yield from enumerate(_blanked(r"\{#.*?#\}|\{% comment %\}.*?\{% endcomment %\}", text).splitlines(), 1)


def _strings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inside | documentation)
        ):
            yield node.lineno, node.value


def _blanked(pattern: str, text: str) -> str:
    """Remove comments but keep the line breaks."""
    return re.sub(pattern, lambda found: "\n" * found.group().count("\n"), text, flags=re.DOTALL)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, re.Match[str]]]:
    for found in pattern.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found


def files() -> list[Path]:
    found = [path for folder, names in PARTS for path in sorted((ROOT / folder).rglob(names))]
    return [path for path in found if not set(path.parts) & set(SKIPPED)]


def main(names: list[str]) -> int:
    problems = [
        f"{path}:{line}: “{phrase}”: write {words}"
        for path in ([Path(name) for name in names] or files())
        for line, sentence in sentences(path)
        for phrase, words in refused(sentence)
    ]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
