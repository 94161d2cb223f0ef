"""Every setting and limit with its value and source, made from their definitions: mcpadmin/variables.py for variables,
servers/limits.py for limits, and the verbs of the pages that change the rest."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import TextChoices
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from servers.agents.oauth import registration
from servers.kit.markdown import render_markdown
from servers.kit.words import format_bytes
from servers.limits import LIMITS, ProductLimit
from servers.models import Server
from servers.privacy import changing as privacy
from servers.privacy.forms import PrivacySettingsForm
from servers.variables import variable
from sessions.configuration.changing import Change, Kept, Refused, Switch
from sessions.retention import limits as retention
from sessions.retention.forms import LimitsForm

#: in names of limits
_SPELT = {"chars": "characters", "json5": "JSON5", "mib": "MiB", "oauth": "OAuth", "pem": "PEM", "yaml": "YAML"}
#: last word of a variable's name -> how its number is written
_UNITS = {
    "SECONDS": "s",
    "MINUTES": "min",
    "HOURS": "h",
    "DAYS": "days",
    "EVENTS": "events",
    "KIB": "KiB",
    "MIB": "MiB",
}


class Source(TextChoices):
    DEFAULT = "default", "Default"
    ENVIRONMENT = "environment", "Environment"
    UP = "up", "manage.py up"
    FILE = "file", "File"
    PAGE = "page", "Page"
    FIXED = "fixed", "Fixed"


@dataclass(frozen=True)
class Setting:
    """`about` is Markdown. `default` is empty if the value is the default. `change`: how this page changes it."""

    name: str
    about: str
    value: str
    source: Source
    default: str = ""
    place: str = ""
    change: Change | None = None
    overrides: int = 0

    @property
    def about_html(self) -> SafeString:
        """Without its links, which lead to pages of the documentation."""
        rendered = render_markdown(_without_links(self.about))
        return mark_safe(rendered or "")  # noqa: S308  # sanitised by nh3

    def matches(self, words: str) -> bool:
        text = f"{self.name} {self.about} {self.value}".lower()
        return all(word in text for word in words.lower().split())


@dataclass(frozen=True)
class Section:
    title: str
    rows: list[Setting]


def sections(words: str = "", source: str = "", refused: Refused | None = None) -> list[Section]:
    """`refused`: its row is shown as it was entered."""
    found = [
        Section("Set on pages", list(_of_pages(refused))),
        *(Section(title, list(_of_variables(title))) for title in settings.VARIABLES),
        Section("Fixed limits", list(_fixed())),
    ]
    shown = [
        Section(one.title, [row for row in one.rows if (not source or row.source == source) and row.matches(words)])
        for one in found
    ]
    return [one for one in shown if one.rows]


# --- variables ---------------------------------------------------------------------------------------------------------
def _of_variables(section: str) -> Iterator[Setting]:
    limits = {limit.variable: limit for limit in LIMITS.values() if limit.variable}
    overrides = Counter(
        name for row in Server.objects.exclude(limits={}).values_list("limits", flat=True) for name in row
    )
    for one in settings.VARIABLES[section]:
        limit = limits.get(one.name)
        source, place = _source(one.name)
        yield Setting(
            one.name,
            one.about,
            limit.in_words() if limit else _value(one.name, source),
            source,
            _default(one, limit) if source != Source.DEFAULT else "",
            place,
            overrides=overrides[limit.name] if limit and limit.of_server else 0,
        )


def _source(name: str) -> tuple[Source, str]:
    """And the file, if it comes from one."""
    if name in settings.VARIABLES_SET_BY_UP:
        return Source.UP, ""
    read = settings.VARIABLES_READ.get(name)
    if read.given if read else variable(name):
        return Source.ENVIRONMENT, ""
    if file := _files().get(name):
        return Source.FILE, str(file)
    return Source.DEFAULT, ""


def _files() -> dict[str, Path]:
    """The files of values that are read from a file if no variable is set."""
    found = {"MCPADMIN_SECRET_KEY": settings.DATA_DIR / "secret_key"}
    if not settings.KEYRING_COMMAND:
        found["MCPADMIN_KEYRING"] = settings.KEYRING_FILE
    return found


def _value(name: str, source: Source) -> str:
    if name in settings.SECRET_VARIABLES:
        return "Not set" if source == Source.DEFAULT else "Set, not shown"
    read = settings.VARIABLES_READ.get(name)
    return without_secrets(_with_unit(name, read.value if read else variable(name)))


def _default(one: Any, limit: ProductLimit | None) -> str:
    read = settings.VARIABLES_READ.get(one.name)
    if limit is not None and read is not None:
        return limit.words_of(read.default)
    return _without_links(one.default) or (_with_unit(one.name, read.default) if read else "")


def _with_unit(name: str, value: Any) -> str:
    """The names of variables end in their unit: MCPADMIN_SESSION_SECONDS, 28800: "28,800 s"."""
    unit = _UNITS.get(name.rpartition("_")[2])
    if unit is None or isinstance(value, bool) or not isinstance(value, int | float):
        return in_words(value)
    return f"{value:,.15g} {unit.removesuffix('s') if value == 1 and len(unit) > 1 else unit}"


def _in_words(name: str) -> str:
    """import_yaml_bytes: "Import YAML bytes"."""
    words = [_SPELT.get(word, word) for word in name.replace("sign_in_", "sign-in_").split("_")]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _without_links(markdown: str) -> str:
    """The links lead to the documentation."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)


def in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "On" if value else "Off"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "None"
    if isinstance(value, float):
        return f"{value:.15g}"
    return "None" if value is None or value == "" else str(value)


def without_secrets(text: str) -> str:
    """Addresses without anything that may be a password."""
    return re.sub(r"\?\S*", "?…", re.sub(r"://\S*@", "://…@", text))


# --- limits without a setting --------------------------------------------------------------------------------------------
def _fixed() -> Iterator[Setting]:
    for limit in LIMITS.values():
        if not limit.variable:
            about = f"{limit.area}: {limit.about}."
            yield Setting(_in_words(limit.name), about, limit.in_words(), Source.FIXED)


# --- what pages change -----------------------------------------------------------------------------------------------
def _of_pages(refused: Refused | None) -> Iterator[Setting]:
    place = reverse("storage:index")
    about = "How long and how much is kept. The oldest rows are removed first. Leave empty to keep everything."
    kept = retention.limits()
    form = LimitsForm() if refused is None else refused.form
    for kind, days, megabytes in form.pairs():
        limit = kept[kind]
        parts = [f"{limit.days} days"] if limit.days is not None else []
        parts += [format_bytes(limit.bytes)] if limit.bytes is not None else []
        yield Setting(
            f"Storage: {kind.label.lower()}",
            about,
            " and ".join(parts) or "Everything",
            Source.PAGE if parts else Source.DEFAULT,
            "Everything" if parts else "",
            place,
            Kept(kind, days, megabytes, refused.problem_of(kind) if refused is not None else ""),
        )
    row, defaults = privacy.settings_now(), type(privacy.settings_now())()
    for name, field in PrivacySettingsForm.base_fields.items():
        on, default = getattr(row, name), getattr(defaults, name)
        yield Setting(
            f"Privacy: {str(field.label or name).rstrip('.')}",
            str(field.help_text),
            in_words(on),
            Source.DEFAULT if on == default else Source.PAGE,
            in_words(default) if on != default else "",
            change=Switch(f"privacy-{name}", on),
            place=reverse("privacy:index"),
        )
    is_open = registration.is_open()
    yield Setting(
        "Agents: client registration",
        "Whether any program that reaches this instance can register itself as an OAuth client (RFC 7591).",
        in_words(is_open),
        Source.PAGE if is_open else Source.DEFAULT,
        in_words(False) if is_open else "",
        change=Switch("registration", is_open),
        place=reverse("oauth:clients"),
    )
    documents = registration.takes_documents()
    yield Setting(
        "Agents: client metadata documents",
        "Whether OAuth clients can be described by a document at an https address, which a worker reads.",
        in_words(documents),
        Source.DEFAULT if documents else Source.PAGE,
        "" if documents else in_words(True),
        change=Switch("documents", documents),
        place=reverse("oauth:clients"),
    )
