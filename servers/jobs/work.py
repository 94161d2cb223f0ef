"""What the jobs of this app do. Exports are in `servers/exporting/work.py`. *Housekeeping* is in `sessions/tasks.py`:
`sessions` knows all that ages."""

from functools import partial
from typing import Any

from servers import keyring
from servers.audit.proof import alarms, checkpoints
from servers.audit.proof.key import KeyMissing
from servers.audit.verify import verify
from servers.credentials import rotation
from servers.crypto import missing_keys
from servers.enums import AlarmKind, JobKind
from servers.jobs.lifecycle import JobOutcome
from servers.jobs.running import JobProgress, does
from servers.kit.words import format_all, format_count
from servers.registration.drafts import purge_drafts


def verify_log(progress: JobProgress) -> JobOutcome:
    """What does not fit also becomes an alarm on every administrator's page. Damage that one of them has acknowledged does
    not hide what comes after it."""
    try:
        misfits = checkpoints.misfits()
    except (KeyMissing, OSError) as problem:
        alarms.sound(AlarmKind.KEY, None, str(problem))
        return JobOutcome(False, f"The signed checkpoints cannot be checked. {problem}", {"ok": False, "checked": 0})
    alarms.sound_misfits(misfits)
    verdict = verify(on_progress=progress, is_known=alarms.acknowledged_damage())
    result: dict[str, Any] = {"ok": verdict.ok, "checked": verdict.checked}
    result |= {"signed": verdict.signed_seq} if verdict.signed_seq else {}
    result |= {"warning": verdict.warning} if verdict.warning else {}
    if verdict.ok:
        return JobOutcome(True, f"{format_all(verdict.checked, 'event')} verified.", result)
    reason, unknown = verdict.reason, verdict.unknown
    if unknown is not None and not misfits:
        alarms.sound(AlarmKind.BROKEN, unknown.seq, str(unknown))
    if unknown is not None and str(unknown) != reason:
        reason = f"{reason} {unknown}"
    result |= {"first_bad_seq": verdict.first_bad_seq, "reason": reason}
    where = f"Broken at event {verdict.first_bad_seq}. " if verdict.first_bad_seq is not None else ""
    return JobOutcome(False, f"{where}{reason}", result)


def rotate_keys(progress: JobProgress) -> JobOutcome:
    """Like `manage.py rotate_keys`. Old keys stay in the key ring: older backups need them."""
    if missing := missing_keys():
        return JobOutcome(False, f"The key ring lacks {', '.join(missing)}. Restore the key ring first.")
    if progress.result.get("key") != keyring.load().current:
        try:
            rotation.begin()
        except rotation.SeveralMachines as problem:
            return JobOutcome(False, str(problem))
        except OSError as problem:
            return JobOutcome(False, f"The key ring file cannot be written ({problem.strerror}).")
        progress.keep(key=keyring.load().current)
    purge_drafts()
    total = sum(rotation.left().values())
    done = rotation.rotate(partial(_report, progress, total))
    current = keyring.load().current
    result = {"key": current, "renewed": done.renewed}
    result |= {"left": rest} if (rest := rotation.left()) else {}
    words = [f"{format_count(done.renewed, 'value')} encrypted with key {current}."]
    if done.broken:
        words = [f"{format_count(len(done.broken), 'value')} could not be re-encrypted. Keep the old keys."]
    if done.newer:
        words.append(done.advice)
    return JobOutcome(not done.broken, " ".join(words), result)


def _report(progress: JobProgress, total: int, renewed: int) -> None:
    progress(renewed, max(total, renewed))


does(JobKind.VERIFICATION, verify_log)
does(JobKind.ROTATION, rotate_keys)
