"""The closed vocabularies of this app. Values are stored and appear in exports: never rename one."""

from django.db.models import TextChoices


class TransportKind(TextChoices):
    """All but stdio are reached by a URL: code about URLs tests for `!= STDIO`."""

    STDIO = "stdio", "stdio (local process)"
    AUTO_HTTP = "auto_http", "Automatic HTTP"
    STREAMABLE_HTTP = "streamable_http", "Streamable HTTP"
    HTTP_SSE = "http_sse", "HTTP+SSE (2024-11-05)"
    WEBSOCKET = "websocket", "WebSocket (not in the specification)"

    @property
    def short(self) -> str:
        """The name alone, for lists and badges."""
        return str(self.label).partition(" (")[0]


class EraChoice(TextChoices):
    AUTO = "auto", "Automatic"
    LEGACY = "legacy", "Legacy (up to 2025-11-25)"
    MODERN = "modern", "Modern (2026-07-28)"


class ConnectionPolicy(TextChoices):
    ALWAYS_ON = "always_on", "Always on"
    ON_DEMAND = "on_demand", "On demand"
    IDLE_TIMEOUT = "idle_timeout", "Close when idle"


class Environment(TextChoices):
    PRODUCTION = "production", "Production"
    STAGING = "staging", "Staging"
    DEVELOPMENT = "development", "Development"
    OTHER = "other", "Other"


class NetworkAccess(TextChoices):
    """What a stdio server may connect to, besides the hosts that its registration names."""

    PUBLIC = "public", "Any public address"
    LISTED = "listed", "Only the listed hosts"
    NONE = "none", "No network"


class Recording(TextChoices):
    """How much of the protocol traffic is recorded."""

    OFF = "off", "Off"
    HEADERS = "headers", "Headers only"
    FULL = "full", "Full"


class ValueKind(TextChoices):
    ENVIRONMENT = "environment", "Environment variable"
    HEADER = "header", "HTTP header"


class CredentialKind(TextChoices):
    BEARER = "bearer", "Bearer token"
    HEADER = "header", "HTTP header"
    BASIC = "basic", "Username and password"
    ENVIRONMENT = "environment", "Environment variable"
    CERTIFICATE = "certificate", "Client certificate or private CA"
    OAUTH = "oauth", "OAuth sign-in"
    SERVICE_ACCOUNT = "service_account", "Service account"
    WORKLOAD = "workload", "Workload identity"
    ENTERPRISE = "enterprise", "Enterprise-managed authorization"

    @property
    def fetches_tokens(self) -> bool:
        """Each session gets its own tokens with it; no one signs in."""
        return self in (CredentialKind.SERVICE_ACCOUNT, CredentialKind.WORKLOAD, CredentialKind.ENTERPRISE)

    @property
    def by_reference(self) -> bool:
        """It is based on a token signed by a third party, which the worker reads again each time."""
        return self in (CredentialKind.WORKLOAD, CredentialKind.ENTERPRISE)


class IdentityKind(TextChoices):
    SHARED = "shared", "Shared"
    PERSONAL = "personal", "Personal"


class SignsInAs(TextChoices):
    """Under which identities of a server there are sessions. An admin declares the shared one."""

    SHARED = "shared", "One shared identity"
    EITHER = "either", "Own credential, or the shared one"
    PERSONAL = "personal", "Own credential required"


class DefinitionKind(TextChoices):
    TOOL = "tool", "Tool"
    RESOURCE = "resource", "Resource"
    RESOURCE_TEMPLATE = "resource_template", "Resource template"
    PROMPT = "prompt", "Prompt"


class DefinitionChange(TextChoices):
    """What a new version means for those who use the definition."""

    FIRST = "first", "First seen"
    COMPATIBLE = "compatible", "Compatible"
    BREAKING = "breaking", "Breaking"
    WORDS = "words", "Descriptions only"
    REMOVED = "removed", "Removed"
    RETURNED = "returned", "Restored"


class PayloadKind(TextChoices):
    ARGUMENTS = "arguments", "Arguments"
    RESULT = "result", "Result"
    CHANGE = "change", "Change"
    QUESTION = "question", "Server request"
    ANSWER = "answer", "Answer"
    RESOURCE = "resource", "Resource"
    SAVED = "saved", "Saved arguments"


class RedactedPart(TextChoices):
    """What a redaction rule applies to."""

    ALL = "all", "Arguments, results and answers"
    ARGUMENTS = "arguments", "Arguments"
    RESULT = "result", "Results"
    ANSWER = "answer", "Answers to server requests"


class AuthorizationState(TextChoices):
    """requested, preparing, ready (the browser may go), answered (it came back), finishing, then an end."""

    REQUESTED = "requested", "Waiting for a worker"
    PREPARING = "preparing", "Contacting the server"
    READY = "ready", "Ready to sign in"
    ANSWERED = "answered", "Signed in, waiting for a worker"
    FINISHING = "finishing", "Fetching the token"
    DONE = "done", "Signed in"
    FAILED = "failed", "Failed"


class DraftState(TextChoices):
    REQUESTED = "requested", "Waiting for a worker"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"


class Theme(TextChoices):
    SYSTEM = "system", "System"
    LIGHT = "light", "Light"
    DARK = "dark", "Dark"


class LinkPurpose(TextChoices):
    INVITATION = "invitation", "Invitation"
    PASSWORD = "password", "Password reset"


class LinkState(TextChoices):
    OPEN = "open", "Waiting"
    USED = "used", "Used"
    REVOKED = "revoked", "Revoked"
    EXPIRED = "expired", "Expired"


class Ecosystem(TextChoices):
    """The source from which a launcher gets its packages."""

    NPM = "npm", "npm"
    PYPI = "pypi", "PyPI"
    IMAGE = "image", "Container image"


class PinState(TextChoices):
    """A server has at most one package of each."""

    PINNED = "pinned", "Pinned"
    PREVIOUS = "previous", "Previous"
    OFFERED = "offered", "Offered"


class ActionSource(TextChoices):
    """The interface through which an action was requested."""

    PAGE = "page", "Page"
    AGENT = "agent", "Agent"
    COMMAND = "command", "Command line"
    TASK = "task", "Background task"
    SCHEDULE = "schedule", "Schedule"


class AgentScope(TextChoices):
    """What a token of an agent allows, of what its person may do."""

    LIST = "mcp:list", "List"
    READ = "mcp:read", "Read"
    CALL = "mcp:call", "Call tools"
    DESTRUCTIVE = "mcp:call:destructive", "Call destructive tools"
    SAMPLING = "mcp:sampling", "Answer for a model"
    INBOX = "mcp:inbox", "Ask people"
    HISTORY = "mcp:history", "Search calls"
    AUDIT = "mcp:audit", "Read the audit log"


class OAuthClientKind(TextChoices):
    """Where the data about an OAuth client comes from."""

    DOCUMENT = "document", "Metadata document"
    REGISTERED = "registered", "Registered itself"
    ADDED = "added", "Added here"


class DocumentState(TextChoices):
    """The state of a client's metadata document, which a worker reads."""

    REQUESTED = "requested", "Requested"
    READING = "reading", "Reading"
    READ = "read", "Read"
    FAILED = "failed", "Failed"


class BundleListing(TextChoices):
    """Which tools a bundle's list has."""

    ALL = "all", "All tools"
    SEARCH = "search", "Search"


class PolicyEffect(TextChoices):
    """What happens to a call of an agent. From the strictest to the most generous."""

    DENY = "deny", "Deny"
    ASK = "ask", "Ask"
    ALLOW = "allow", "Allow"


class PolicyKind(TextChoices):
    """What a pattern of a rule is compared with."""

    TOOL = "tool", "Tool"
    RESOURCE = "resource", "Resource"
    PROMPT = "prompt", "Prompt"


class OwnApproval(TextChoices):
    """Whether the person of a token may approve what their own agent asks for."""

    ALWAYS = "always", "Yes"
    EXCEPT_DESTRUCTIVE = "except_destructive", "Yes, except for destructive tools"
    NEVER = "never", "No, another person must"


class JobKind(TextChoices):
    HOUSEKEEPING = "housekeeping", "Housekeeping"
    VERIFICATION = "verification", "Audit log verification"
    ROTATION = "rotation", "Key rotation"
    RETENTION = "retention", "Retention"
    RETENTION_DRY_RUN = "retention_trial", "Retention dry run"
    EXPORT = "export", "Audit log export"
    STATISTICS = "statistics", "Call statistics"


class SinkKind(TextChoices):
    """The kind of receiver that audit events are forwarded to."""

    OTLP = "otlp", "OpenTelemetry (OTLP/HTTP)"
    SYSLOG = "syslog", "Syslog over TLS"
    HTTP = "http", "HTTP endpoint"


class ExportFormat(TextChoices):
    JSONL = "jsonl", "JSONL"
    CSV = "csv", "CSV"


class ExportTarget(TextChoices):
    """The place where a scheduled export is stored."""

    DIRECTORY = "directory", "Directory"
    S3 = "s3", "S3-compatible store"


class Interval(TextChoices):
    HOURLY = "hourly", "Every hour"
    DAILY = "daily", "Every day"
    WEEKLY = "weekly", "Every week"


class JobState(TextChoices):
    """An interrupted job lost its worker and is retried; it is over only as succeeded or failed."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    INTERRUPTED = "interrupted", "Interrupted"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"


class AuditAction(TextChoices):
    """source:subject:action"""

    SIGN_IN = "account:session:sign_in", "Signed in"
    SIGN_IN_FAILED = "account:session:sign_in_failed", "Sign-in failed"
    SIGN_OUT = "account:session:sign_out", "Signed out"
    SIGN_INS_END = "account:session:end", "Sign-ins ended"
    PASSWORD_CHANGE = "account:password:change", "Password changed"
    ADMINISTRATOR_CREATE = "account:administrator:create", "First administrator created"
    USER_CREATE = "account:user:create", "User created"
    SERVICE_ACCOUNT_CREATE = "account:service:create", "Service account added"
    USER_CHANGE = "account:user:change", "User changed"
    USER_DELETE = "account:user:delete", "User deleted"
    USER_INVITE = "account:user:invite", "User invited"
    USER_JOIN = "account:user:join", "Invitation accepted"
    USER_DISABLE = "account:user:disable", "User disabled"
    USER_ENABLE = "account:user:enable", "User enabled"
    USER_HAND_OVER = "account:user:hand_over", "Work handed over"
    LINK_REISSUE = "account:link:reissue", "Invitation link renewed"
    LINK_REVOKE = "account:link:revoke", "Link revoked"
    PASSWORD_LINK = "account:password:link", "Password reset link issued"
    PASSWORD_RESET = "account:password:reset", "Password set with a link"
    AGENT_TOKEN_ISSUE = "account:token:issue", "Agent token created"
    AGENT_TOKEN_REVOKE = "account:token:revoke", "Agent token revoked"
    AGENT_TOKEN_REFUSE = "account:token:refuse", "Agent token refused"
    AGENT_TOKEN_DECLINE = "account:token:decline", "Client access declined"
    OAUTH_CLIENT_ADD = "account:client:add", "OAuth client added"
    OAUTH_CLIENT_REGISTER = "account:client:register", "OAuth client registered itself"
    OAUTH_CLIENT_READ = "account:client:read", "OAuth client document requested"
    OAUTH_CLIENT_BLOCK = "account:client:block", "OAuth client blocked"
    OAUTH_CLIENT_UNBLOCK = "account:client:unblock", "OAuth client unblocked"
    OAUTH_CLIENT_DELETE = "account:client:delete", "OAuth client deleted"
    OAUTH_REGISTRATION_CHANGE = "account:client:registration", "OAuth client registration turned on or off"
    BUNDLE_CREATE = "server:bundle:create", "Bundle created"
    BUNDLE_CHANGE = "server:bundle:change", "Bundle changed"
    BUNDLE_DELETE = "server:bundle:delete", "Bundle deleted"
    BUNDLE_RESTORE = "server:bundle:restore", "Bundle restored"
    BUNDLE_EXPORT = "server:bundle:export", "Bundle exported"
    AGENT_TOKEN_POLICY = "account:token:policy", "Token policy changed"
    PERMISSIONS_CHANGE = "account:rights:change", "Permissions changed"
    PERMISSION_DENY = "account:permission:deny", "Permission denied"
    SERVER_REGISTER = "server:registration:create", "Server registered"
    SERVER_CHANGE = "server:registration:change", "Server changed"
    SERVER_CLONE = "server:registration:clone", "Server cloned"
    SERVER_ENABLE = "server:registration:enable", "Server enabled"
    SERVER_DISABLE = "server:registration:disable", "Server disabled"
    SERVER_ARCHIVE = "server:registration:archive", "Server archived"
    SERVER_RESTORE = "server:registration:restore", "Server restored"
    SERVER_DELETE = "server:registration:delete", "Server deleted"
    SERVER_EXPORT = "server:registration:export", "Servers exported"
    WIRE_EXPORT = "server:protocol:export", "Protocol messages exported"
    CREDENTIAL_SET = "server:credential:set", "Credential set"
    CREDENTIAL_REMOVE = "server:credential:remove", "Credential removed"
    CREDENTIAL_CREATE = "server:credential:create", "Credential added"
    CREDENTIAL_REPLACE = "server:credential:replace", "Credential replaced"
    CREDENTIAL_DELETE = "server:credential:delete", "Credential deleted"
    CREDENTIAL_ATTACH = "server:credential:attach", "Credential attached to server"
    CREDENTIAL_DETACH = "server:credential:detach", "Credential detached from server"
    CREDENTIAL_BLANK = "server:credential:blank", "Credential removed: server address changed"
    SIGN_IN_BEGIN = "server:credential:sign_in", "Server sign-in started"
    SIGN_IN_END = "server:credential:signed_in", "Server sign-in completed"
    REFERENCE_GRANT = "server:reference:grant", "Reference granted"
    REFERENCE_REVOKE = "server:reference:revoke", "Reference grant removed"
    IDENTITY_CREATE = "server:identity:create", "Personal identity created"
    IDENTITY_END = "server:identity:end", "Personal identity removed"
    KEYS_ROTATE = "server:credential:rotate", "Keys rotated"
    PACKAGE_PIN = "server:package:pin", "Package pinned"
    PACKAGE_UPDATE = "server:package:update", "Package updated"
    PACKAGE_BACK = "server:package:back", "Package update undone"
    PACKAGE_REPIN = "server:package:repin", "Changed package pinned again"
    PACKAGE_REFUSE = "server:package:refuse", "Changed package refused"
    PACKAGE_CHECK = "server:package:check", "Package checked"
    CONNECTION_TEST = "server:connection:test", "Connection tested"
    SESSION_OPEN = "server:session:open", "Session requested"
    SESSION_CLOSE = "server:session:close", "Session closed"
    SESSION_READY = "server:session:ready", "Session ready"
    SESSION_LOST = "server:session:lost", "Session lost"
    SESSION_PAUSE = "server:session:pause", "Session paused"
    SESSION_RESUME = "server:session:resume", "Session resumed"
    SESSION_RETRY = "server:session:retry", "Retry requested"
    CATALOG_CHANGE = "server:catalog:change", "Definitions changed"
    DEFINITION_APPROVE = "server:definition:approve", "Changed definition approved"
    AGENT_POLICY_CHANGE = "server:policy:change", "Agent policy changed"
    SUBSCRIPTION_CREATE = "server:subscription:create", "Subscribed"
    SUBSCRIPTION_CHANGE = "server:subscription:change", "Subscription changed"
    SUBSCRIPTION_END = "server:subscription:end", "Unsubscribed"
    SUBSCRIPTION_DELETE = "server:subscription:delete", "Subscription deleted"
    WEBHOOK_FAIL = "server:webhook:fail", "Webhook delivery failed"
    SAVED_CALL_CREATE = "server:saved_call:create", "Call saved"
    SAVED_CALL_CHANGE = "server:saved_call:change", "Saved call changed"
    SAVED_CALL_DELETE = "server:saved_call:delete", "Saved call deleted"
    QUESTION_RECEIVE = "inbox:question:receive", "Server request received"
    QUESTION_TAKE = "inbox:question:take", "Server request assigned"
    QUESTION_ANSWER = "inbox:question:answer", "Server request answered"
    QUESTION_END = "inbox:question:end", "Server request closed"
    APPROVAL_ASK = "inbox:approval:ask", "Approval requested"
    APPROVAL_GRANT = "inbox:approval:grant", "Call approved"
    APPROVAL_REFUSE = "inbox:approval:refuse", "Call refused"
    APPROVAL_EXPIRE = "inbox:approval:expire", "Approval request expired"
    APPROVAL_VOID = "inbox:approval:void", "Approval request voided"
    INSTANCE_HOLD = "instance:copy:hold", "Instance put on hold"
    INSTANCE_RELEASE = "instance:copy:release", "Instance released"
    JOB_REQUEST = "instance:job:request", "Background job requested"
    AUDIT_VERIFY = "instance:audit:verify", "Audit log verified"
    AUDIT_CUT = "instance:audit:cut", "Old audit events removed"
    AUDIT_ALARM = "instance:audit:alarm", "Audit alarm raised"
    AUDIT_ACKNOWLEDGE = "instance:audit:acknowledge", "Audit alarm acknowledged"
    CHECKPOINT_KEY = "instance:audit:key", "Checkpoint key replaced"
    PAYLOAD_READ = "instance:payload:read", "Payload read"
    PAYLOAD_ERASE = "instance:payload:erase", "Payload erased"
    PRIVACY_CHANGE = "instance:privacy:change", "Privacy settings changed"
    RETENTION_CHANGE = "instance:retention:change", "Retention changed"
    RETENTION_RUN = "instance:retention:run", "Retention run"
    EXPORT_REQUEST = "instance:export:request", "Export requested"
    EXPORT_END = "instance:export:end", "Export finished"
    EXPORT_DOWNLOAD = "instance:export:download", "Export downloaded"
    EXPORT_DELETE = "instance:export:delete", "Export deleted"
    SCHEDULE_CREATE = "instance:schedule:create", "Export schedule added"
    SCHEDULE_CHANGE = "instance:schedule:change", "Export schedule changed"
    SCHEDULE_DELETE = "instance:schedule:delete", "Export schedule deleted"
    SINK_CREATE = "instance:sink:create", "Sink added"
    SINK_CHANGE = "instance:sink:change", "Sink changed"
    SINK_PAUSE = "instance:sink:pause", "Sink paused"
    SINK_RESUME = "instance:sink:resume", "Sink resumed"
    SINK_REWIND = "instance:sink:rewind", "Sink position changed"
    SINK_TEST = "instance:sink:test", "Sink tested"
    SINK_DELETE = "instance:sink:delete", "Sink deleted"
    SINK_STALL = "instance:sink:stall", "Forwarding stalled"
    SINK_RECOVER = "instance:sink:recover", "Forwarding resumed"
    SINK_SKIP = "instance:sink:skip", "Events removed before they were forwarded"
    VIEW_DELETE = "instance:view:delete", "Shared view deleted"
    REPORTS_CLEAR = "instance:reports:clear", "Browser reports cleared"
    CALL_REQUEST = "call:tool:request", "Call requested"
    CALL_SEND = "call:tool:send", "Call sent"
    CALL_FINISH = "call:tool:finish", "Call finished"
    CALL_CANCEL = "call:tool:cancel", "Cancellation requested"


class AuditOutcome(TextChoices):
    OK = "ok", "OK"
    DENIED = "denied", "Denied"
    FAILED = "failed", "Failed"
    TOOL_ERROR = "tool_error", "Tool error"
    RPC_ERROR = "rpc_error", "JSON-RPC error"
    CANCELLED = "cancelled", "Cancelled"
    UNKNOWN = "outcome_unknown", "Outcome unknown"
    PENDING = "pending", "Pending"


class StatementKind(TextChoices):
    """What a signed statement about the audit log says: docs/audit-proof.md."""

    REGULAR = "regular", "Checkpoint"
    CUT = "cut", "Cut"
    REMOVAL = "removal", "Removal"
    RESTORED = "restored", "Restoration"
    EXPORT = "export", "Export"


class AlarmKind(TextChoices):
    BEHIND = "behind", "The audit log is older than its checkpoints"
    REWRITTEN = "rewritten", "The audit log was rewritten"
    BROKEN = "broken", "The audit log was changed"
    KEY = "key", "The checkpoint key does not match the audit log"
