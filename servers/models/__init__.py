from servers.models.audit import AuditEvent, AuditHead
from servers.models.catalog import Definition, DefinitionVersion
from servers.models.credential import Credential, CredentialUse
from servers.models.draft import ServerDraft
from servers.models.identity import Identity
from servers.models.payload import Payload
from servers.models.server import Server, ServerValue
from servers.models.sign_in import SignIn

__all__ = [
    "AuditEvent",
    "AuditHead",
    "Credential",
    "CredentialUse",
    "Definition",
    "DefinitionVersion",
    "Identity",
    "Payload",
    "Server",
    "ServerDraft",
    "ServerValue",
    "SignIn",
]
