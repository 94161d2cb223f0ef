"""What a server says, as lines of its log: messages, stderr and protocol violations. Called from the client's
reader."""

from servers.audit import policy
from servers.privacy import redaction
from sessions.calls.claims import PendingCall
from sessions.enums import LogSource
from sessions.host.answer_redaction import Redactor
from sessions.host.logs.repeats import Repeats
from sessions.host.logs.session_log import ServerLog, ServerLogLine
from sessions.host.opening import Diagnosis
from sessions.mcp.core.events import DiagnosticLine, LogMessage, NotDelivered, ProtocolViolation, RequestRefused


class Spoken:
    def __init__(self, log: ServerLog, redactor: Redactor, diagnosis: Diagnosis) -> None:
        self._log, self._redactor, self._diagnosis = log, redactor, diagnosis
        self._repeats = Repeats(log)

    def close(self) -> None:
        self._repeats.close()

    def log_message(self, event: LogMessage) -> None:
        redact = self._redactor
        text = redact.text(event.data) if isinstance(event.data, str) else redact.json_text(event.data)
        text = redaction.detected_in(text, policy.latest())
        call_uid = event.tag.uid if isinstance(event.tag, PendingCall) else None
        self._log.add(ServerLogLine(LogSource.SERVER, event.level, text, redact.text(event.logger or ""), call_uid))

    def diagnostic(self, event: DiagnosticLine) -> None:
        self._diagnosis.on_event(event)
        level = "info" if event.stream == "stderr" else "warning"
        text = redaction.detected_in(self._redactor.text(event.text), policy.latest())
        self._log.add(ServerLogLine(LogSource.STDERR, level, text, event.stream))

    def violation(self, event: ProtocolViolation) -> None:
        self._repeats.say(self._redactor.text(f"The server broke the protocol: {event.detail}"), "warning")

    def not_delivered(self, event: NotDelivered) -> None:
        self._repeats.say(self._redactor.text(event.detail), "notice")

    def refused(self, event: RequestRefused) -> None:
        words = f"Refused the server's request {event.method} ({event.code})."
        self._repeats.say(self._redactor.text(words), "notice")
