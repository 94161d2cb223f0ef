"""What the inbox shows of a question: its text, its state, and who may read it. Read-only."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from servers import access
from servers.kit.pages import RowsPage, page_before
from servers.models import Server
from sessions.enums import QuestionKind, QuestionState
from sessions.inbox import reads
from sessions.inbox.more_time import longer
from sessions.inbox.sampling_request import SamplingRequest, read_request
from sessions.inbox.visit_address import VisitAddress, read_address
from sessions.models import Call, McpSession, Question

PAGE = 50
OPEN_SHOWN = 200
MESSAGE_CHARS = 16_384

# state: (tone of the kit, icon)
LOOKS: dict[str, tuple[str, str]] = {
    QuestionState.OPEN: ("run", "hourglass"),
    QuestionState.ACCEPTED: ("ok", "check"),
    QuestionState.DECLINED: ("warn", "hand-stop"),
    QuestionState.CANCELLED: ("warn", "x"),
    QuestionState.EXPIRED: ("warn", "clock-x"),
    QuestionState.WITHDRAWN: ("", "arrow-back-up"),
}
#: columns that a list of questions does not read
_CONTENTS = [f"{link}__{column}" for link in ("question", "answer") for column in ("text", "blob", "sealed")]
#: columns of the session that are not read: only its identity says who may answer
_OF_SESSION = [f"session__{one.name}" for one in McpSession._meta.concrete_fields if one.name not in ("id", "identity")]
ICONS = {QuestionKind.FORM: "forms", QuestionKind.URL: "external-link", QuestionKind.SAMPLING: "sparkles"}


@dataclass(frozen=True)
class QuestionCard:
    """One question for one reader."""

    question: Question
    readable: bool
    may_answer: bool

    @cached_property
    def params(self) -> dict[str, Any]:
        """Empty if the reader may not see it, or it was erased. A list does not need it, and it may be of any size."""
        return reads.params_of(self.question) if self.readable else {}

    @property
    def open(self) -> bool:
        return self.question.state == QuestionState.OPEN

    @property
    def more_time(self) -> datetime | None:
        """The later deadline that a person who may answer can set."""
        return longer(self.question) if self.open and self.may_answer else None

    @property
    def message(self) -> str:
        return self._message[:MESSAGE_CHARS]

    @property
    def message_left(self) -> int:
        """How many characters of the message are not shown."""
        return max(0, len(self._message) - MESSAGE_CHARS)

    @property
    def _message(self) -> str:
        text = self.params.get("message")
        return text if isinstance(text, str) else ""

    @property
    def erased(self) -> bool:
        return self.question.question.erased_at is not None

    @property
    def address(self) -> VisitAddress:
        return read_address(self.params.get("url"))

    @property
    def sampling(self) -> SamplingRequest:
        return read_request(self.params)

    @property
    def after_visit(self) -> bool:
        """The answer says that the visit is over, not that it begins (error -32042)."""
        return self.question.origin == "error"


def seen(user: Any) -> QuerySet[Question]:
    """Questions outlive their servers: one without a server is visible to everyone who may view servers."""
    rows = Question.objects.select_related("server", "call", "question", "answer", "session__identity")
    rows = rows.defer(*_OF_SESSION, "session__identity__challenge")
    if not access.may(user, "view"):
        return rows.none()
    own = Q(session__identity__user_id=user.pk)
    whose = access.seen_of_people(user, Q(personal=True), own)
    return rows.filter(Q(server__in=access.visible_servers(user)) | Q(server=None), whose)


def may_answer(user: Any, question: Question | None = None) -> bool:
    """Only its person may answer requests in a personal session."""
    return access.may(user, "answer_question") and (question is None or reads.is_theirs(user, question))


def may_read(user: Any, question: Question) -> bool:
    """The server's text: readable for people who may answer, made the call, or may read payloads."""
    return may_answer(user, question) or access.may_read_payloads(user) or _own_call(user, question)


def may_read_answer(user: Any, question: Question) -> bool:
    """The person who answered or made the call, and everyone who may read arguments and results."""
    own = reads.answered_by(user.pk, user.get_username(), question) or _own_call(user, question)
    return own or access.may_read_payloads(user)


def _own_call(user: Any, question: Question) -> bool:
    return question.call is not None and question.call.user_id == user.pk


def card_of(user: Any, question: Question) -> QuestionCard:
    return QuestionCard(question, may_read(user, question), may_answer(user, question))


def answer_of(user: Any, question: Question) -> dict[str, Any] | None:
    """The content of the answer, if the reader may see it; otherwise None."""
    return reads.stored_answer(question) if may_read_answer(user, question) else None


@dataclass(frozen=True)
class End:
    """`text` adds to the title and never repeats it."""

    title: str
    text: str


def end_of(question: Question) -> End:
    """How a question ended."""
    by, said = question.answered_by, question.detail
    match question.state:
        case QuestionState.ACCEPTED if by or not said:
            title = f"Answered by {by}" if by else "Completed"
        case QuestionState.DECLINED:
            title = f"Declined by {by or 'mcpadmin'}"
        case QuestionState.CANCELLED:
            title = f"Cancelled by {by}" if by else "Cancelled"
        case QuestionState.EXPIRED:
            title = "Not answered in time"
        case QuestionState.WITHDRAWN if not said:
            title = "The server withdrew the request"
        case _:  # no person answered: the reason says it all
            return End(said.removesuffix("."), "")
    return End(title, said.removeprefix(f"{title}.").strip())


# --- lists -----------------------------------------------------------------------------------------------------------
def open_count(user: Any) -> int:
    """Runs on every page: if nothing is open, the rules about who sees what are not evaluated."""
    is_open = Q(state=QuestionState.OPEN)
    return seen(user).filter(is_open).count() if Question.objects.filter(is_open).exists() else 0


def open_questions(user: Any) -> list[Question]:
    """Those that expire first come first."""
    listed = seen(user).filter(state=QuestionState.OPEN).defer(*_CONTENTS)
    return list(listed.order_by("expires_at", "id")[:OPEN_SHOWN])


def open_total(user: Any, listed: list[Question]) -> int:
    """The number of open questions. `listed`: what `open_questions` returned."""
    return len(listed) if len(listed) < OPEN_SHOWN else open_count(user)


def ended_page(user: Any, before: int | None) -> RowsPage[Question]:
    return page_before(seen(user).exclude(state=QuestionState.OPEN).defer(*_CONTENTS), "id", before, PAGE)


def waiting_for(call: Call) -> list[Question]:
    """The open questions of a call, oldest first. No query for a call without open questions."""
    if not call.open_questions:
        return []
    return list(call.questions.filter(state=QuestionState.OPEN).order_by("id")[:10])


def open_of_server(server: Server) -> int:
    """Counts only the session of the identity that `server` was read for."""
    whose = {"session__identity_id": server.seen_as} if server.seen_as is not None else {"personal": False}
    return Question.objects.filter(server_id=server.pk, state=QuestionState.OPEN, **whose).count()


def next_open(user: Any, after: UUID) -> Question | None:
    """The next open question after this one was answered."""
    return seen(user).filter(state=QuestionState.OPEN).exclude(uid=after).order_by("expires_at", "id").first()
