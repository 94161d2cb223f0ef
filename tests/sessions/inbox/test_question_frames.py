"""Live frames of the inbox carry the state of each question and the open count, and no text of a server."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.utils import timezone

from sessions.enums import QuestionKind, QuestionState
from sessions.live import inbox_frames
from tests.servers.conftest import admin  # noqa: F401 -- a fixture
from tests.sessions.inbox.rows import FORM, SAMPLING, a_call, a_question, answered

pytestmark = pytest.mark.django_db


def told(uids: Any = None) -> tuple[dict[str, dict[str, Any]], int]:
    """The rows by question, and the open count."""
    bodies = [orjson.loads(frame.text) for frame in inbox_frames.frames(uids)]
    rows = {row["question"]: row for body in bodies if body["kind"] == "question" for row in body["rows"]}
    (count,) = [body["rows"][0]["open"] for body in bodies if body["kind"] == "count"]
    return rows, count


def test_who_comes_learns_of_all_that_wait_and_of_what_ended_just_now() -> None:
    waiting = a_question(FORM)
    just = answered(a_question(FORM), None, "bob", QuestionState.DECLINED)
    long_ago = answered(a_question(FORM), None, "bob", QuestionState.DECLINED)
    long_ago.ended_at = timezone.now() - timedelta(hours=1)
    long_ago.save()
    rows, count = told()
    assert {uid: row["state"] for uid, row in rows.items()} == {str(waiting.uid): "open", str(just.uid): "declined"}
    assert count == 1


def test_a_hint_reads_only_the_question_that_it_names(admin: Any) -> None:  # noqa: F811 - the fixture
    call = a_call(a_question(FORM).server, admin)
    named = a_question(SAMPLING, QuestionKind.SAMPLING, call=call, owner_name="ada")
    rows, count = told([named.uid])
    assert rows == {
        str(named.uid): {
            "question": str(named.uid), "version": 1, "state": "open", "kind": "sampling",
            "server": str(named.server.uid), "server_name": "Demo", "call": str(call.uid),
            "owner": "ada", "answered_by": "", "expires_at": named.expires_at.isoformat(),
        }
    }  # fmt: skip
    assert count == 2


def test_no_word_of_a_server_and_no_answer_is_in_a_frame() -> None:
    answered(a_question({"message": "canary-asked", "url": "https://canary-url.example/"}), {"a": "canary-told"}, "bob")
    a_question({"message": "canary-asked"}, detail="canary-detail")
    assert not any("canary" in frame.text for frame in inbox_frames.frames(None))


def test_an_older_frame_is_never_taken_for_a_newer_one() -> None:
    question = a_question(FORM, version=7)
    (frame, _) = inbox_frames.frames([question.uid])
    assert (frame.key, frame.version) == (str(question.uid), 7)


def test_a_question_that_is_gone_leaves_the_count_alone() -> None:
    question = a_question(FORM)
    uid = question.uid
    question.delete()
    assert told([uid]) == ({}, 0)
