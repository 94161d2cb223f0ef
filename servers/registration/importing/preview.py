"""What an import preview shows: each server with its values in words, and the available choices."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from servers.configuration import Registration, ValueInput
from servers.enums import TransportKind
from servers.registration.importing.applying import Choice, Decision, ImportOutcome, choices
from servers.registration.importing.entry_reader import Need
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
    """One header or variable: its name, and what the file says about it in words, never a secret."""

    name: str
    text: str
    kind: str  # plain, secret, reference, needed


@dataclass(frozen=True)
class NeedField:
    """A value to fill in. `text`: the content of its field, never a secret."""

    need: Need
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Offer:
    """`chosen` and `name`: the current selection and entry."""

    proposal: Proposal
    word: str
    css: str
    icon: str
    transport: str = ""
    endpoint: str = ""
    lines: list[ValueLine] = field(default_factory=list)
    choices: list[tuple[str, str]] = field(default_factory=list)
    done: bool = False
    chosen: str = ""
    name: str = ""
    needs: list[NeedField] = field(default_factory=list)


def offer(proposal: Proposal, outcomes: list[ImportOutcome], decision: Decision | None = None) -> Offer:
    """`done`: an earlier attempt stored it, so no choice is left. `decision`: what was posted and is shown again."""
    word, css, icon = _WORDS[proposal.verdict]
    stored = {outcome.name for outcome in outcomes if outcome.is_stored}
    found = proposal.registration or proposal.entry.registration
    options = [(choice.value, _CHOICES[choice]) for choice in choices(proposal)]
    shown = Offer(
        proposal,
        word,
        css,
        icon,
        choices=options,
        done=proposal.entry.name in stored,
        chosen=decision.choice if decision else options[0][0],
        name=(decision.name if decision else "") or f"{proposal.entry.name[:112]} (2)",
        needs=[_need_field(need, decision) for need in proposal.entry.needs],
    )
    if found is None:
        return shown
    readable = not proposal.entry.problems  # what cannot be parsed cannot be masked
    lines = [_line(proposal, value) for value in found.used_values()]
    lines += [ValueLine(one.words, "required", "needed") for one in proposal.entry.credentials]
    return replace(
        shown,
        transport=TransportKind(found.transport).short,
        endpoint=_endpoint(proposal, found) if readable else "",
        lines=lines,
    )


def _need_field(need: Need, decision: Decision | None) -> NeedField:
    if decision is None:
        return NeedField(need, "" if need.secret else need.default)
    lacking = need.required and decision.choice != Choice.SKIP and need.key not in decision.typed
    text = "" if need.secret else decision.typed.get(need.key, "")
    return NeedField(need, text, "Enter the value." if lacking else "")


def loses_secret(offers: list[Offer], decided: Mapping[int, Decision]) -> bool:
    """Whether a secret was entered, which is not sent back to the page."""
    return any(
        need.secret and need.key in decided[one.proposal.index].typed
        for one in offers
        for need in one.proposal.entry.needs
    )


def summary(proposals: list[Proposal]) -> str:
    """“2 new, 1 with differences, 1 cannot be imported”"""
    words = {
        Plan.CREATE: "new",
        Plan.CHANGE: "with differences",
        Plan.SAME: "identical",
        Plan.REFUSE: "cannot be imported",
    }
    counted = ((sum(one.verdict == verdict for one in proposals), word) for verdict, word in words.items())
    return ", ".join(f"{count} {word}" for count, word in counted if count)


def _endpoint(proposal: Proposal, found: Registration) -> str:
    """With `<Region>` where the file has `${input:region}`, an id that means nothing to people."""
    if found.transport != TransportKind.STDIO:
        text = masked_url(found.url)
    else:
        text = shlex.join([found.command, *masked_arguments(found.arguments)])
    for need in proposal.entry.needs:
        if need.key.startswith("input:"):
            text = text.replace(f"${{{need.key}}}", f"<{need.label}>")
    return text


def _line(proposal: Proposal, value: ValueInput) -> ValueLine:
    if value.needed:
        needs = (need for need in proposal.entry.needs if need.place.partition(" ")[2] == value.name)
        placeholder = next((f"placeholder {need.printed}" for need in needs if need.printed), "value required")
        return ValueLine(value.name, placeholder, "needed")
    if value.value is None:
        return ValueLine(value.name, "stored value kept", "secret")
    if value.secret:
        return ValueLine(value.name, "encrypted", "secret")
    return ValueLine(value.name, value.text(), "reference" if references(value.text()) else "plain")
