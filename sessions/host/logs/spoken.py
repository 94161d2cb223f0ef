"""What a server says, as lines of its log: messages, stderr and protocol violations. Called from the client's
reader."""

from collections import defaultdict
from typing import Any

from servers.audit import payload_privacy
from servers.privacy import redaction
from servers.privacy.detection import KeyLines
from sessions import hints
from sessions.calls.agent_calls import CallingAgent
from sessions.calls.claims import PendingCall
from sessions.enums import LogSource
from sessions.host.answer_redaction import WORDS_CHARS, Redactor, dumped, masked_words
from sessions.host.logs.repeats import Repeats
from sessions.host.logs.session_log import ServerLog, ServerLogLine
from sessions.host.opening import Diagnosis
from sessions.mcp.core.events import DiagnosticLine, LogMessage, NotDelivered, ProtocolViolation, RequestRefused
from sessions.mcp.core.methods import LOG_LEVELS

#: characters of one line passed on to an agent; a longer one is truncated, and becomes text
PASSED_CHARS = 8_000


class ServerMessages:
    def __init__(self, log: ServerLog, redactor: Redactor, diagnosis: Diagnosis) -> None:
        self._log, self._redactor, self._diagnosis = log, redactor, diagnosis
        self._repeats = Repeats(log)
        self._passed_on = 0
        #: by stream
        self._keys: defaultdict[str, KeyLines] = defaultdict(KeyLines)

    def close(self) -> None:
        self._repeats.close()

    def log_message(self, event: LogMessage) -> None:
        said = event.data if isinstance(event.data, str) else dumped(event.data)
        is_json = not isinstance(event.data, str) and len(said) <= 2 * WORDS_CHARS
        text = self._masked_json(event.data) if is_json else self._masked(said)
        call_uid = event.tag.uid if isinstance(event.tag, PendingCall) else None
        logger = self._masked(event.logger or "")
        self._log.add(ServerLogLine(LogSource.SERVER, event.level, text, logger, call_uid))
        if isinstance(event.tag, PendingCall) and event.tag.agent is not None:
            self._pass_on(event.tag.agent, event, text, logger, is_json)

    def _pass_on(self, agent: CallingAgent, event: LogMessage, text: str, logger: str, is_json: bool) -> None:
        """Pass the line on to the agent that made the call, if it requested lines of this level."""
        level, order = agent.on_behalf.log_level, LOG_LEVELS.index
        if level is None or event.level not in LOG_LEVELS or order(event.level) < order(level):
            return
        # Numbered, because a later hint replaces an equal earlier one.
        self._passed_on += 1
        line = {
            "n": self._passed_on,
            "level": event.level,
            "logger": logger[:200],
            "text": text[:PASSED_CHARS],
            "json": is_json and len(text) <= PASSED_CHARS,
        }
        hints.call_logged(event.tag.uid, line)

    def diagnostic(self, event: DiagnosticLine) -> None:
        self._diagnosis.on_event(event)
        level = "info" if event.stream == "stderr" else "warning"
        text = self._masked(event.text)
        if payload_privacy.latest().detect:
            text = self._keys[event.stream].masked(text)
        self._log.add(ServerLogLine(LogSource.STDERR, level, text, event.stream))

    def violation(self, event: ProtocolViolation) -> None:
        self._repeats.say(self._masked(f"The server broke the protocol: {event.detail}"), "warning")

    def not_delivered(self, event: NotDelivered) -> None:
        self._repeats.say(self._masked(event.detail), "notice")

    def refused(self, event: RequestRefused) -> None:
        self._repeats.say(self._masked(f"Refused the server's request {event.method} ({event.code})."), "notice")

    def _masked(self, text: str) -> str:
        return masked_words(text, self._redactor)

    def _masked_json(self, data: Any) -> str:
        """Unlike `_masked`: in JSON text, a word may begin after an escape, and a mask must not include quotes."""
        return redaction.detected_in_json(self._redactor.json_text(data), payload_privacy.latest())
