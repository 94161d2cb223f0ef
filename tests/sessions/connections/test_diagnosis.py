"""Every fault has its own title and a remedy."""

import pytest

from servers.enums import TransportKind
from servers.models import Server
from sessions.connections.diagnosis import explain
from sessions.mcp.core.errors import Fault

UNKNOWN = explain("no_such_fault", "")


@pytest.mark.parametrize("fault", [*Fault, "secret_unreadable", "internal_error"])
def test_every_fault_has_a_title_and_a_remedy_of_its_own(fault: str) -> None:
    found = explain(fault, "what happened")
    assert found.title != UNKNOWN.title
    assert found.remedy.endswith(".")
    assert found.cause == "what happened"


def test_no_two_faults_have_the_same_title() -> None:
    titles = [explain(fault, "").title for fault in Fault]
    assert [title for title in titles if titles.count(title) > 1] == []


def test_a_lost_child_is_not_called_a_lost_connection() -> None:
    server = Server(transport=TransportKind.STDIO, command="npx")
    assert "restarts the command" in explain(Fault.CONNECTION_LOST, "", server).remedy


def test_the_remedy_of_a_limit_leads_to_where_it_is_set() -> None:
    raised = (Fault.MESSAGE_LIMIT, Fault.VALUE_LIMIT, Fault.DEPTH_LIMIT, Fault.LIST_LIMIT, Fault.PAGE_LIMIT)
    assert [fault for fault in raised if "Settings, Limits" not in explain(fault, "").remedy] == []
