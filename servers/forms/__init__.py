from servers.forms.audit import AuditFilterForm
from servers.forms.server import ServerForm
from servers.forms.suggestion import Suggestion, suggest, suggest_transport

__all__ = ["AuditFilterForm", "ServerForm", "Suggestion", "suggest", "suggest_transport"]
