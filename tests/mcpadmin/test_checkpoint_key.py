"""The key of the audit log: shown, replaced, and given up when it is lost."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from servers.audit.proof import key, removals
from servers.audit.proof.cuts import cut
from servers.audit.verify import verify
from servers.enums import AuditAction
from servers.models import AuditEvent, Payload
from sessions.models import Call
from tests.servers.audit.proof import log

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_key(settings: Any, tmp_path: Path) -> None:
    log.new_key(settings, tmp_path)


def test_the_public_key_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("checkpoint_key")
    assert capsys.readouterr().out == f"{log.public_key()}\n"


def test_after_a_replacement_both_keys_count_and_the_log_verifies(capsys: pytest.CaptureFixture[str]) -> None:
    log.fill(2)
    old = log.public_key()
    call_command("checkpoint_key", "--replace")
    new = log.public_key()
    assert new != old
    assert [known.text for known in key.load().trusted] == [new, old]
    log.fill(2)
    assert verify().ok, verify()
    assert AuditEvent.objects.get(action=AuditAction.CHECKPOINT_KEY).way == "command"
    assert Path(key.settings.CHECKPOINT_KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_key_stays_one(tmp_path: Path) -> None:
    link, real = Path(key.settings.CHECKPOINT_KEY_FILE), tmp_path / "elsewhere.json"
    link.rename(real)
    link.symlink_to(real)
    old = real.read_text()
    call_command("checkpoint_key", "--replace")
    assert link.is_symlink()
    assert real.read_text() != old


@pytest.mark.parametrize("words", [["--forget"], ["--retired", "test.example/audit-1+00+AA"]])
def test_what_only_a_replacement_reads_is_refused_without_one(words: list[str]) -> None:
    with pytest.raises(CommandError, match="--retired and --forget need --replace"):
        call_command("checkpoint_key", *words)


def test_a_lost_key_is_replaced_with_its_public_key_and_nothing_is_lost() -> None:
    log.fill(2)
    old = log.public_key()
    Path(key.settings.CHECKPOINT_KEY_FILE).unlink()
    with pytest.raises(CommandError, match="--retired"):
        call_command("checkpoint_key", "--replace")
    call_command("checkpoint_key", "--replace", "--retired", old)
    assert verify().ok, verify()


def test_without_its_public_key_what_it_signed_is_given_up_and_a_cut_is_signed_again() -> None:
    log.fill(4)
    cut(8)
    Path(key.settings.CHECKPOINT_KEY_FILE).unlink()
    call_command("checkpoint_key", "--replace", "--forget")
    log.fill(2)
    assert verify().ok, verify()


def test_rows_that_the_retention_removed_are_not_missed_after_its_key_was_given_up() -> None:
    log.fill(3)
    removals.allow("calls", log.later(-3600))
    removals.allow("payloads", log.later(0))
    removals.allow("calls", log.later(0))
    allowed = removals.allowed("calls"), removals.allowed("payloads")
    Call.objects.all().delete()
    Payload.objects.all().delete()
    assert verify().ok, verify()
    Path(key.settings.CHECKPOINT_KEY_FILE).unlink()
    call_command("checkpoint_key", "--replace", "--forget")
    assert (removals.allowed("calls"), removals.allowed("payloads")) == allowed
    log.fill(2)
    assert verify().ok, verify()


def test_a_key_file_that_cannot_be_replaced_is_reported_and_no_private_key_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = Path(key.settings.CHECKPOINT_KEY_FILE)
    before, old = sorted(os.listdir(path.parent)), log.public_key()

    def busy(_draft: Path, _target: Path) -> None:  # as for a file that is mounted alone
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(
        CommandError, match=r"^The checkpoint key file cannot be written \(Device or resource busy\)\.$"
    ):
        call_command("checkpoint_key", "--replace")
    assert (sorted(os.listdir(path.parent)), log.public_key()) == (before, old)
