"""Signals of this app, sent after commit; `sessions` listens, `servers` does not know it."""

from django.dispatch import Signal

audit_recorded = Signal()  # seqs: range of the sequence numbers just committed
server_changed = Signal()  # server_uid: UUID, change: AuditAction, reconnect: bool (its connection changed),
# identity_id: whose credentials changed, None for the registration itself
# server: Server, before the transaction that deletes it. An answer that is not None is a function: what it does would hold
# the database for too long in that transaction, and is done before, once the server is disabled
server_deleting = Signal()
account_deleting = Signal()  # user: User; the same of an account
grants_deleting = Signal()  # grants: QuerySet[AgentToken]; the same of grants, once they count no more
authorization_asked = Signal()  # authorization_uid: UUID, label: str (of the worker that must do its next step)
identity_ended = Signal()  # identity_id: int; in the transaction that ends it, each answer counts what it ended
draft_changed = Signal()  # draft_uid: UUID
job_changed = Signal()  # of some background job: its state or its progress
sign_ins_ended = Signal()  # user_id: int, keys: list[str] (of browser sessions that are gone); after commit
# Each answer is a list of servers.accounts.belongings.Belonging: what else refers to this user
belongings_asked = Signal()  # user: User
work_handed_over = Signal()  # user: User, to: User; in the transaction, each answer is {what: count}
# Contents were removed: by a person's request, or by the retention. What was copied from them must go
payload_erased = Signal()  # payload_ids: list[int], everywhere: bool (see payloads.erase_all); in the transaction
rows_removed = Signal()  # ids: list[int], of the model that is the sender; in the transaction of the retention's batch
sink_asked = Signal()  # sink_uid: UUID, of the sink that a worker must look at now; after commit
client_document_asked = Signal()  # client_uid: UUID; a worker must read its document. Answers whether one runs
bundle_changed = Signal()  # bundle_uid: UUID; after commit
machines_asked = Signal()  # each answer is a set of str: the machines on which workers run
agent_policy_changed = Signal()  # of an endpoint or a token; after commit
