from servers.registration.forms.server import ServerForm
from servers.registration.forms.suggestion import Suggestion, suggest, suggest_transport

__all__ = ["ServerForm", "Suggestion", "suggest", "suggest_transport"]
