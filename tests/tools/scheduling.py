"""Which process of a phase gets which test files, and in which order."""

from typing import Any

from xdist.scheduler import LoadFileScheduling

#: Files whose tests share a world of the session that takes long to start: one process runs them all.
SHARED_WORLDS = ("tests/sessions/agents/", "tests/mcpadmin/web/")
#: What takes long, the longest of all tests first; after it the files with the most tests, so few tests that take long
#: would come last. They would keep one process busy while the others of its phase have nothing left.
LONGEST = (
    *("tests/e2e/test_investigation.py", "tests/servers/test_squashed_migrations.py"),
    *SHARED_WORLDS,
    *("tests/servers/audit/proof/test_mutations.py", "tests/sessions/retention/test_months.py"),
    *("tests/servers/test_identity_migration.py", "tests/servers/test_reference_migration.py"),
    *("tests/faults/test_shortened.py", "tests/canary/test_sweep.py", "tests/mcpadmin/test_up.py"),
    *("tests/e2e/test_page_states.py", "tests/e2e/test_kept_work.py", "tests/e2e/test_hostile_texts.py"),
    *("tests/e2e/test_weight.py", "tests/kit/test_pages.py", "tests/e2e/test_firefox.py"),
    *("tests/sessions/host/test_worker_healing.py", "tests/sessions/mcp/transports/test_confinement.py"),
    *("tests/sessions/host/test_worker_handover.py", "tests/sessions/host/test_worker_inbox_ends.py"),
    *("tests/conformance/test_conformance.py", "tests/interop/test_interop.py"),
    *("tests/test_routes.py", "tests/sessions/live/test_topics.py", "tests/sessions/live/test_calls.py"),
    # what takes half a minute of a few short tests
    *("tests/e2e/test_healing_page.py", "tests/e2e/test_subscriptions.py", "tests/e2e/test_inbox.py"),
    *("tests/e2e/test_bad_input.py", "tests/sessions/subscriptions/test_watching_live.py"),
    *("tests/sessions/mcp/transports/test_own_network.py", "tests/sessions/mcp/transports/test_stdio_endings.py"),
    *("tests/sessions/test_cycles.py", "tests/sessions/test_deleted_meanwhile.py"),
    *("tests/sessions/calls/test_placing.py", "tests/sessions/test_many_sessions.py"),
    *("tests/mcpadmin/test_postgres.py", "tests/mcpadmin/test_managing.py", "tests/mcpadmin/test_redis_address.py"),
)


class ByFileAndWorld(LoadFileScheduling):
    def _assign_work_unit(self, node: Any) -> None:
        for scope in reversed(LONGEST):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Without units that have ended: this is asked after each of ten thousand tests, and would look at all before it."""
        for scope in [scope for scope, unit in workload.items() if all(unit.values())]:
            del workload[scope]
        return int(super()._pending_of(workload))

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED_WORLDS if nodeid.startswith(folder)), super()._split_scope(nodeid))
