"""Signals of this app, sent after commit; `sessions` listens to them, and `servers` does not depend on it."""

from django.dispatch import Signal

audit_recorded = Signal()  # seqs: range of the sequence numbers just committed
server_changed = Signal()  # server_uid: UUID, change: AuditAction, reconnect: bool (its connection changed),
# identity_id: whose credentials changed, None for the registration itself
# server: Server, before the transaction that deletes it. A response that is not None is a function: its work would
# block the database for too long in that transaction, so it is called before, once the server is disabled
server_deleting = Signal()
account_deleting = Signal()  # user: User; the same for an account
grants_deleting = Signal()  # grants: QuerySet[AgentToken]; the same for grants, once they are no longer valid
authorization_asked = Signal()  # authorization_uid: UUID, label: str (of the worker that must do its next step)
identity_ended = Signal()  # identity_id: int; in the transaction that ends it, each response counts what it ended
draft_changed = Signal()  # draft_uid: UUID
job_changed = Signal()  # the state or progress of some background job
sign_ins_ended = Signal()  # user_id: int, keys: list[str] (of ended browser sessions); after commit
# Each response is a list of servers.accounts.belongings.Belonging: what else refers to this user
belongings_asked = Signal()  # user: User
work_handed_over = Signal()  # user: User, to: User; in the transaction, each response is {what: count}
# Contents were removed, at a person's request or by retention. Copies of them must be removed too
payload_erased = Signal()  # payload_ids: list[int], everywhere: bool (see payloads.erase_all); in the transaction
rows_removed = Signal()  # ids: list[int], of the model that is the sender; in the transaction of the retention batch
sink_asked = Signal()  # sink_uid: UUID, of the sink that a worker must look at now; after commit
client_document_asked = Signal()  # client_uid: UUID; a worker must read its document. Responds whether one is running
bundle_changed = Signal()  # bundle_uid: UUID; after commit
machines_asked = Signal()  # each response is a set of str: the machines on which workers run
agent_policy_changed = Signal()  # for an endpoint or a token; after commit
