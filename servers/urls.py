"""The audit log, mounted at /audit/, credentials, at /credentials/, background jobs, at /jobs/, privacy, at /privacy/, exports
and forwarding, at /exports/, users, at /users/, browser reports, at /browser-reports/, one-time links, at /link/, OAuth
for agents, at /oauth/, and its discovery, at /.well-known/."""

from django.urls import path

from servers.views import (
    account_links,
    agent_oauth,
    audit,
    browser_reports,
    credentials,
    exports,
    groups,
    issuer,
    jobs,
    privacy,
    proof,
    references,
    sinks,
    users,
)

app_name = "audit"
urlpatterns = [
    path("", audit.index, name="list"),
    path("verify/", audit.verify_all, name="verify"),
    path("proof/", proof.index, name="proof"),
    path("proof/verifier/", proof.verifier, name="verifier"),
    path("proof/key/", proof.public_key, name="public_key"),
    path("alarms/<uuid:uid>/acknowledge/", proof.acknowledge, name="acknowledge"),
    path("<int:seq>/", audit.detail, name="detail"),
]

credential_patterns = [
    path("", credentials.board, name="list"),
    path("add/", credentials.add, name="add"),
    path("references/", references.index, name="references"),
    path("references/<uuid:uid>/revoke/", references.revoke, name="revoke_reference"),
    path("<uuid:uid>/", credentials.detail, name="detail"),
    path("<uuid:uid>/replace/", credentials.replace, name="replace"),
    path("<uuid:uid>/delete/", credentials.delete, name="delete"),
    path("for/<slug:slug>/", credentials.attach, name="attach"),
    path("for/<slug:slug>/<uuid:uid>/remove/", credentials.detach, name="detach"),
    path("for/<slug:slug>/issuer/", issuer.expect, name="issuer"),
]

job_patterns = [
    path("", jobs.index, name="list"),
    path("rotate-keys/", jobs.rotate_keys, name="rotate_keys"),
]

privacy_patterns = [
    path("", privacy.index, name="index"),
    path("try/", privacy.try_out, name="try"),
    path("rules/add/", privacy.add_rule, name="add_rule"),
    path("rules/<uuid:uid>/", privacy.rule, name="rule"),
    path("rules/<uuid:uid>/switch/", privacy.switch_rule, name="switch_rule"),
    path("rules/<uuid:uid>/delete/", privacy.delete_rule, name="delete_rule"),
]

export_patterns = [
    path("", exports.index, name="list"),
    path("add/", exports.add, name="add"),
    path("<uuid:uid>/download/", exports.download, name="download"),
    path("<uuid:uid>/delete/", exports.delete, name="delete"),
    path("schedules/add/", exports.add_schedule, name="add_schedule"),
    path("schedules/<uuid:uid>/", exports.schedule, name="schedule"),
    path("schedules/<uuid:uid>/run/", exports.run_schedule, name="run_schedule"),
    path("schedules/<uuid:uid>/pause/", exports.pause_schedule, name="pause_schedule"),
    path("schedules/<uuid:uid>/delete/", exports.delete_schedule, name="delete_schedule"),
    path("sinks/add/", sinks.add, name="add_sink"),
    path("sinks/<uuid:uid>/", sinks.detail, name="sink"),
    path("sinks/<uuid:uid>/test/", sinks.test, name="test_sink"),
    path("sinks/<uuid:uid>/pause/", sinks.pause, name="pause_sink"),
    path("sinks/<uuid:uid>/resume/", sinks.resume, name="resume_sink"),
    path("sinks/<uuid:uid>/rewind/", sinks.rewind, name="rewind_sink"),
    path("sinks/<uuid:uid>/signing/", sinks.renew_signing, name="renew_signing"),
    path("sinks/<uuid:uid>/delete/", sinks.delete, name="delete_sink"),
]

user_patterns = [
    path("", users.index, name="list"),
    path("invite/", users.invite, name="invite"),
    path("invitations/<uuid:uid>/renew/", users.reissue, name="reissue"),
    path("invitations/<uuid:uid>/revoke/", users.revoke, name="revoke"),
    path("service-accounts/add/", users.add_service_account, name="add_service_account"),
    path("groups/", groups.index, name="groups"),
    path("groups/add/", groups.add, name="add_group"),
    path("groups/<int:group_id>/", groups.detail, name="group"),
    path("groups/<int:group_id>/delete/", groups.delete, name="delete_group"),
    path("<int:user_id>/", users.detail, name="detail"),
    path("<int:user_id>/permissions/", users.permissions, name="permissions"),
    path("<int:user_id>/disable/", users.disable, name="disable"),
    path("<int:user_id>/enable/", users.enable, name="enable"),
    path("<int:user_id>/password-link/", users.reset, name="reset"),
    path("<int:user_id>/sign-ins/end/", users.end_sign_ins, name="end_sign_ins"),
    path("<int:user_id>/sign-ins/<int:number>/end/", users.end_sign_in, name="end_sign_in"),
    path("<int:user_id>/hand-over/", users.hand_over, name="hand_over"),
    path("<int:user_id>/identities/<uuid:uid>/remove/", users.end_identity, name="end_identity"),
    path("<int:user_id>/delete/", users.delete, name="delete"),
]

report_patterns = [
    path("", browser_reports.receive, name="receive"),
    path("list/", browser_reports.index, name="list"),
    path("clear/", browser_reports.clear, name="clear"),
]

link_patterns = [path("<str:token>/", account_links.open_link, name="account_link")]

oauth_patterns = [
    path("authorize", agent_oauth.authorize, name="authorize"),
    path("token", agent_oauth.token, name="token"),
    path("revoke", agent_oauth.revoke, name="revoke"),
    path("register", agent_oauth.register, name="register"),
    path("clients/", agent_oauth.index, name="clients"),
    path("clients/add/", agent_oauth.add, name="add"),
    path("clients/registration/", agent_oauth.switch_registration, name="registration"),
    path("clients/documents/", agent_oauth.switch_documents, name="documents"),
    path("clients/<uuid:uid>/block/", agent_oauth.block, name="block"),
    path("clients/<uuid:uid>/unblock/", agent_oauth.unblock, name="unblock"),
    path("clients/<uuid:uid>/delete/", agent_oauth.delete, name="delete"),
]

discovery_patterns = [
    path("oauth-protected-resource/mcp/<slug:slug>", agent_oauth.protected_resource, name="protected_resource"),
    path("oauth-authorization-server", agent_oauth.server_metadata, name="authorization_server"),
]
