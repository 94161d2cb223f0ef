"""What the preview of an import shows: each server with its values in words, and the choices that it leaves."""

import shlex
from dataclasses import dataclass, field

from servers.configuration import Registration, ValueInput
from servers.enums import TransportKind
from servers.registration.importing.applying import Choice, ImportOutcome, choices
from servers.registration.importing.planning import Plan, Proposal, masked_arguments
from servers.validators import masked_url, references

_WORDS = {
    Plan.CREATE: ("New", "ok", "circle-check"),
    Plan.CHANGE: ("Exists with differences", "warn", "alert-triangle"),
    Plan.SAME: ("Exists, identical", "line", "check"),
    Plan.REFUSE: ("Cannot be imported", "bad", "circle-x"),
}
_CHOICES = {
    Choice.CREATE: "Create",
    Choice.OVERWRITE: "Overwrite",
    Choice.RENAME: "Create under another name",
    Choice.SKIP: "Skip",
}


@dataclass(frozen=True)
class ValueLine:
    """One header or variable: its name, and what the file says of it in words; a secret never."""

    name: str
    text: str
    kind: str  # plain, secret, reference, needed


@dataclass(frozen=True)
class Offer:
    proposal: Proposal
    word: str
    css: str
    icon: str
    transport: str = ""
    endpoint: str = ""
    lines: list[ValueLine] = field(default_factory=list)
    choices: list[tuple[str, str]] = field(default_factory=list)
    done: bool = False

    @property
    def suggested(self) -> str:
        return f"{self.proposal.entry.name[:112]} (2)"


def offer(proposal: Proposal, outcomes: list[ImportOutcome]) -> Offer:
    """`done`: an earlier try stored it, so it is not asked about again."""
    word, css, icon = _WORDS[proposal.verdict]
    stored = {outcome.name for outcome in outcomes if outcome.result in ("created", "changed")}
    found = proposal.registration or proposal.entry.registration
    options = [(choice.value, _CHOICES[choice]) for choice in choices(proposal)]
    done = proposal.entry.name in stored
    if found is None:
        return Offer(proposal, word, css, icon, choices=options, done=done)
    return Offer(
        proposal,
        word,
        css,
        icon,
        TransportKind(found.transport).short,
        ""
        if proposal.entry.problems
        else _with_labels(proposal, _endpoint(found)),  # what cannot be read cannot be masked
        [*(_line(proposal, value) for value in found.used_values()), *_credential_lines(proposal)],
        options,
        done,
    )


def summary(proposals: list[Proposal]) -> str:
    """“2 new, 1 differs, 1 refused”"""
    words = {
        Plan.CREATE: "new",
        Plan.CHANGE: "with differences",
        Plan.SAME: "identical",
        Plan.REFUSE: "cannot be imported",
    }
    counted = ((sum(one.verdict == verdict for one in proposals), word) for verdict, word in words.items())
    return ", ".join(f"{count} {word}" for count, word in counted if count)


def _endpoint(found: Registration) -> str:
    if found.transport != TransportKind.STDIO:
        return masked_url(found.url)
    return shlex.join([found.command, *masked_arguments(found.arguments)])


def _with_labels(proposal: Proposal, text: str) -> str:
    """`<Region>` where the file has `${input:region}`, whose id says nothing to a reader."""
    for need in proposal.entry.needs:
        if need.key.startswith("input:"):
            text = text.replace(f"${{{need.key}}}", f"<{need.label}>")
    return text


def _credential_lines(proposal: Proposal) -> list[ValueLine]:
    return [ValueLine(one.words, "required", "needed") for one in proposal.entry.credentials]


def _printed(proposal: Proposal, name: str) -> str:
    """What the file prints in the place of the value."""
    needs = (need for need in proposal.entry.needs if need.printed and need.place.partition(" ")[2] == name)
    return next((f"placeholder {need.printed}" for need in needs), "")


def _line(proposal: Proposal, value: ValueInput) -> ValueLine:
    if value.needed:
        return ValueLine(value.name, _printed(proposal, value.name) or "value required", "needed")
    if value.value is None:
        return ValueLine(value.name, "stored value kept", "secret")
    if value.secret:
        return ValueLine(value.name, "encrypted", "secret")
    return ValueLine(value.name, value.text(), "reference" if references(value.text()) else "plain")
