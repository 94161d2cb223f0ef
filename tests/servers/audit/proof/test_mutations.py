"""Whatever is changed behind our back is found by both verifiers, which name the first bad event."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from django.conf import settings as configured
from django.db import connection, transaction

from servers.audit.proof import file, triggers, verify_export
from servers.audit.proof.cuts import cut
from servers.audit.proof.verify_export import Bad
from servers.audit.verdict import Broken
from servers.audit.verify import verify
from servers.models import AuditEvent, Checkpoint
from tests.servers.audit.proof import log, mutations
from tests.servers.audit.proof.mutations import IN_DATABASE

SHORT, WHOLE, SEED = 57, 1_000, 8785


class Undo(Exception):
    pass


def by_program(export: Path) -> int | str | None:
    """The first bad event according to the stand-alone verifier, or its report if it finds none."""
    try:
        return str(verify_export.verify(str(export), [log.public_key()], [str(configured.CHECKPOINT_FILE)]))
    except Bad as bad:
        return cast("int | None", bad.args[0])


def mutate(count: int, tmp_path: Path) -> None:
    """Each change in a transaction that is rolled back, so that each meets the same log."""
    dice, export = random.Random(SEED), tmp_path / "export.jsonl"
    triggers.drop(connection)
    assert verify().ok
    clean = log.export_to(tmp_path / "clean.jsonl")
    assert verify_export.verify(str(clean), [log.public_key()])
    for number in range(count):
        kind = IN_DATABASE[number % len(IN_DATABASE)]
        try:
            with transaction.atomic():
                one(kind, dice, export)
                raise Undo
        except Undo:
            pass
        shutil.copyfile(clean, export)
        change = mutations.change_lines(export, dice)
        found = by_program(export)
        assert change.right(found), (change, found)
    assert verify().ok


def one(kind: Callable[[random.Random], Any], dice: random.Random, export: Path) -> None:
    change = kind(dice)
    verdict = verify()
    assert not verdict.ok, change
    assert change.right(verdict.first_bad_seq), (change, verdict)
    if change.exported:
        found = by_program(log.export_to(export))
        assert change.right(found), (change, found)


@pytest.mark.django_db
def test_every_change_of_a_whole_log_is_found_by_both_verifiers(tmp_path: Path) -> None:
    log.fill(4)
    mutate(SHORT, tmp_path)


@pytest.mark.django_db
def test_whatever_was_acknowledged_one_by_one_the_verification_ends_and_finds_what_comes_later() -> None:
    log.fill(4)
    triggers.drop(connection)
    dice = random.Random(SEED)
    for kind in IN_DATABASE:
        try:
            with transaction.atomic():
                change, known = kind(dice), set[tuple[int | None, str]]()
                while (found := acknowledging(known)) is not None:
                    assert (found.seq, str(found)) not in known, change
                    known.add((found.seq, str(found)))
                intact = AuditEvent.objects.exclude(seq__in=[seq for seq, _ in known if seq is not None])
                if (last := intact.order_by("-seq").first()) is not None and last.seq > 0:
                    mutations.sql("UPDATE servers_auditevent SET ip = '192.0.2.200' WHERE seq = %s", last.seq)
                    found = acknowledging(known)
                    assert found is not None, change
                    assert found.seq == last.seq, (change, str(found))
                raise Undo
        except Undo:
            pass


def acknowledging(known: set[tuple[int | None, str]]) -> Broken | None:
    return verify(is_known=lambda broken: (broken.seq, str(broken)) in known).unknown


@pytest.mark.long
@pytest.mark.django_db
def test_a_thousand_changes_are_found_by_both_verifiers(tmp_path: Path) -> None:
    log.fill()
    mutate(WHOLE, tmp_path)


@pytest.mark.parametrize("count", [len(IN_DATABASE), pytest.param(SHORT, marks=pytest.mark.long)])
@pytest.mark.django_db(transaction=True)
def test_every_change_of_a_log_that_begins_with_a_cut_is_found_by_both_verifiers(count: int, tmp_path: Path) -> None:
    log.fill(5)
    cut(8)
    file.append("cut", Checkpoint.objects.get(kind="cut").note)
    log.sign()  # nothing vouches yet for what is younger than the newest checkpoint
    mutate(count, tmp_path)


@pytest.mark.usefixtures("on_postgres")
def test_every_change_on_postgresql_is_found_by_both_verifiers(tmp_path: Path) -> None:
    log.fill(4)
    mutate(len(IN_DATABASE), tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("on_postgres")
def test_a_thousand_changes_on_postgresql_are_found_by_both_verifiers(tmp_path: Path) -> None:
    log.fill()
    mutate(WHOLE, tmp_path)
