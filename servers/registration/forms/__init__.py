from servers.registration.forms.server import ServerForm
from servers.registration.forms.suggestion import Suggestion, suggest

__all__ = ["ServerForm", "Suggestion", "suggest"]
