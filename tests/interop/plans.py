"""How to exercise each kind of server: which of its tools proves which verb."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Use:
    """One call. The default names a tool that no server has."""

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: expected text in the result; "" accepts any result, including a tool error
    says: str = ""


@dataclass(frozen=True)
class Plan:
    call: Use
    #: reports progress / runs for seconds unless it is cancelled
    slow: Use = Use()
    slower: Use = Use()
    #: returns how many calls were cancelled, as counted by the server
    cut_short: Use = Use()
    #: variables for the server's first template, and the expected content
    values: Mapping[str, str] = field(default_factory=dict)
    expanded: str = ""
    #: the resource to subscribe to, and the call that changes it; "": the server's first resource
    followed: str = ""
    touch: Use = Use()
    prompt: str = ""
    prompt_arguments: Mapping[str, str] = field(default_factory=dict)
    #: a reference, one of its arguments, the typed text, and one of the expected values
    completed: Mapping[str, str] = field(default_factory=dict)
    argument: Mapping[str, str] = field(default_factory=dict)
    completion: str = ""
    ask_model: Use = Use()
    ask_person: Use = Use()
    log: Use = Use()
    logged: str = ""


#: the matrix's answers to server requests, recognizable in the server's result
SAMPLED = "forty-two"
ELICITED = "Ulm"

#: peers built on tests/peers/toolbox.py and conversations.py, or their TypeScript equivalents
TOOLBOX = Plan(
    call=Use("echo", {"text": "grüße"}, says="grüße"),
    slow=Use("slow", {"steps": 3, "delay": 0.05}, says="done after 3 steps"),
    slower=Use("slow", {"steps": 40, "delay": 0.05}),
    cut_short=Use("cut_short"),
    values={"name": "bread"},
    expanded="the note called bread",
    followed="peer://clock",
    touch=Use("touch", {"uri": "peer://clock"}, says="touched"),
    prompt="summarise",
    prompt_arguments={"text": "a long story", "style": "friendly"},
    completed={"type": "ref/prompt", "name": "summarise"},
    argument={"name": "style", "value": "f"},
    completion="friendly",
    ask_model=Use("ask_model", {"question": "What is 6 * 7?"}, says=SAMPLED),
    ask_person=Use("ask_person", says=ELICITED),
    log=Use("log", {"text": "written down", "level": "warning"}, says="logged"),
    logged="written down",
)

#: the Python SDK's peer behind a bridge that forwards its messages
BRIDGED = TOOLBOX
#: without a Grafana, the call ends in a tool error
GRAFANA = Plan(call=Use("list_datasources"))

EVERYTHING = Plan(
    call=Use("echo", {"message": "grüße"}, says="grüße"),
    slow=Use("trigger-long-running-operation", {"duration": 0.2, "steps": 3}, says="completed"),
    slower=Use("trigger-long-running-operation", {"duration": 3, "steps": 30}),
    values={"resourceId": "3"},
    expanded="Resource 3",
    followed="demo://resource/dynamic/text/3",
    touch=Use("toggle-subscriber-updates"),
    prompt="simple-prompt",
    completed={"type": "ref/prompt", "name": "completable-prompt"},
    argument={"name": "department", "value": "E"},
    completion="Engineering",
    ask_model=Use("trigger-sampling-request", {"prompt": "What is 6 * 7?", "maxTokens": 20}, says=SAMPLED),
    ask_person=Use("trigger-elicitation-request", says=ELICITED),
    log=Use("toggle-simulated-logging"),
)

FILESYSTEM = Plan(call=Use("list_allowed_directories", says="/"))
MEMORY = Plan(
    call=Use("read_graph", says="entities"),
    followed="memory://knowledge-graph",
    touch=Use("create_entities", {"entities": [{"name": "Ulm", "entityType": "city", "observations": []}]}),
)
POSTGRES = Plan(call=Use("query", {"sql": "select 6 * 7 as answer"}, says="42"))

#: With a dummy key and no network access, a call must still get a response: a tool error.
GITHUB = Plan(call=Use("search_repositories", {"query": "mcp"}))
BRAVE = Plan(call=Use("brave_web_search", {"query": "mcp"}))
MAPS = Plan(call=Use("maps_geocode", {"address": "Ulm"}))
SLACK = Plan(call=Use("slack_list_channels", {}))
