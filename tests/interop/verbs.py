"""What a client does with a server (the columns of the matrix), and what each revision supports."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sessions.mcp.core.versions import REVISIONS
from tests.interop.plans import Plan


class Verb(StrEnum):
    CONNECT = "connect"
    LIST = "list"
    CALL = "call"
    PROGRESS = "progress"
    CANCEL = "cancel"
    READ = "read"
    TEMPLATE = "template"
    SUBSCRIBE = "subscribe"
    PROMPT = "prompt"
    COMPLETE = "complete"
    SAMPLE = "sample"
    ELICIT = "elicit"
    LOG = "log"


#: the only reasons for an empty cell
NOT_DECLARED = "not declared"
NOT_IN_REVISION = "not in this revision"
#: the server declares it but does not do it; its source was checked to make sure the fault is not ours
NOT_SERVED = "declared, but not served"
NOT_OFFERED = "transport not offered"


@dataclass
class Declared:
    """What a server declared over one connection."""

    revision: str
    capabilities: dict[str, Any] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def has(self, capability: str, feature: str | None = None) -> bool:
        value = self.capabilities.get(capability)
        return isinstance(value, dict) and (feature is None or value.get(feature) is True)


def why_empty(verb: Verb, declared: Declared, plan: Plan) -> str:
    """Why this cell may be empty; "" when the server must pass it.

    Nothing in the protocol declares that a tool reports progress, requests sampling or elicits input. There, the tool's
    name in the server's list counts as the declaration.
    """
    if verb is Verb.ELICIT and not REVISIONS[declared.revision].elicitation:
        return NOT_IN_REVISION
    return "" if _OWED[verb](declared, plan) else NOT_DECLARED


def _completes(declared: Declared, plan: Plan) -> bool:
    """2024-11-05 has completion but no capability for it, so a prompt that is known to complete counts."""
    if declared.has("completions"):
        return True
    return declared.revision == "2024-11-05" and plan.completed.get("name") in declared.prompts


_OWED = {
    Verb.CONNECT: lambda declared, plan: True,
    Verb.LIST: lambda declared, plan: any(declared.has(kind) for kind in ("tools", "resources", "prompts")),
    Verb.CALL: lambda declared, plan: bool(declared.tools),
    Verb.PROGRESS: lambda declared, plan: plan.slow.tool in declared.tools,
    Verb.CANCEL: lambda declared, plan: plan.slower.tool in declared.tools,
    Verb.READ: lambda declared, plan: bool(declared.resources),
    Verb.TEMPLATE: lambda declared, plan: bool(declared.templates),
    Verb.SUBSCRIBE: lambda declared, plan: declared.has("resources", "subscribe"),
    Verb.PROMPT: lambda declared, plan: bool(declared.prompts),
    Verb.COMPLETE: _completes,
    Verb.SAMPLE: lambda declared, plan: plan.ask_model.tool in declared.tools,
    Verb.ELICIT: lambda declared, plan: plan.ask_person.tool in declared.tools,
    Verb.LOG: lambda declared, plan: declared.has("logging"),
}
