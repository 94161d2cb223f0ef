"""The tables of servers, credentials, definitions and the audit log."""

from servers.models.account import AccountLink, Preferences, ServiceAccount
from servers.models.agent_policy import AgentPolicy, AgentRule
from servers.models.agent_token import AgentToken
from servers.models.audit import AuditEvent, AuditHead
from servers.models.browser_report import BrowserReport
from servers.models.bundle import Bundle, BundleMember, ExposedName
from servers.models.catalog import Definition, DefinitionVersion
from servers.models.credential import Credential, CredentialUse
from servers.models.draft import ServerDraft
from servers.models.export import Export, ExportSchedule
from servers.models.forwarding import Sink
from servers.models.icon import Icon
from servers.models.identity import Identity
from servers.models.instance import Instance
from servers.models.job import BackgroundJob
from servers.models.oauth import OAuthClient, OAuthCode, OAuthToken
from servers.models.package import PinnedPackage
from servers.models.payload import Payload, PayloadReading, Unredacted
from servers.models.privacy import PrivacySettings, RedactionRule
from servers.models.proof import AuditAlarm, Checkpoint, Witness
from servers.models.reference_grant import ReferenceGrant
from servers.models.server import Server, ServerValue
from servers.models.server_authorization import ServerAuthorization

__all__ = [
    "AccountLink",
    "AgentPolicy",
    "AgentRule",
    "AgentToken",
    "AuditAlarm",
    "AuditEvent",
    "AuditHead",
    "BackgroundJob",
    "BrowserReport",
    "Bundle",
    "BundleMember",
    "Checkpoint",
    "Credential",
    "CredentialUse",
    "Definition",
    "DefinitionVersion",
    "Export",
    "ExportSchedule",
    "ExposedName",
    "Icon",
    "Identity",
    "Instance",
    "OAuthClient",
    "OAuthCode",
    "OAuthToken",
    "Payload",
    "PayloadReading",
    "PinnedPackage",
    "Preferences",
    "PrivacySettings",
    "RedactionRule",
    "ReferenceGrant",
    "Server",
    "ServerAuthorization",
    "ServerDraft",
    "ServerValue",
    "ServiceAccount",
    "Sink",
    "Unredacted",
    "Witness",
]
