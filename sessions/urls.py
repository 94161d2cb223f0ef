"""Every page and action around servers, sessions and calls. Mounted at the root."""

from django.urls import include, path

from sessions.views import (
    authorization,
    calls,
    catalog,
    completion,
    definitions,
    importing,
    inbox,
    live,
    overview,
    palette,
    prompts,
    registration,
    resources,
    servers,
    sessions,
    subscription_verbs,
    subscriptions,
    verbs,
)

server_patterns = [
    path("", servers.index, name="list"),
    path("add/", registration.add, name="add"),
    path("demo/", registration.add_demo, name="demo"),
    path("test/", registration.test, name="test"),
    path("test/<uuid:uid>/", registration.test_progress, name="test_progress"),
    path("import/", importing.start, name="import"),
    path("import/<uuid:uid>/", importing.preview, name="import_preview"),
    path("export/", importing.export, name="export"),
    path("<slug:slug>/", servers.detail, name="detail"),
    path("<slug:slug>/tools/", catalog.tools, name="tools"),
    path("<slug:slug>/tools/form/", catalog.tool_form, name="tool_form"),
    path("<slug:slug>/resources/", resources.page, name="resources"),
    path("<slug:slug>/resources/uri/", resources.expand, name="expand"),
    path("<slug:slug>/resources/read/", resources.read, name="read"),
    path("<slug:slug>/prompts/", prompts.page, name="prompts"),
    path("<slug:slug>/prompts/get/", prompts.get, name="get_prompt"),
    path("<slug:slug>/definitions/<slug:kind>/", definitions.history, name="definition"),
    path("<slug:slug>/logs/", catalog.logs, name="logs"),
    path("<slug:slug>/history/", catalog.history, name="history"),
    path("<slug:slug>/settings/", registration.edit, name="settings"),
    path("<slug:slug>/info/", servers.info, name="info"),
    path("<slug:slug>/clone/", registration.clone, name="clone"),
    path("<slug:slug>/call/", calls.place, name="call"),
    path("<slug:slug>/subscribe/", subscription_verbs.subscribe, name="subscribe"),
    path("<slug:slug>/connect/", verbs.connect, name="connect"),
    path("<slug:slug>/disconnect/", verbs.disconnect, name="disconnect"),
    path("<slug:slug>/reconnect/", verbs.reconnect, name="reconnect"),
    path("<slug:slug>/refresh/", verbs.refresh, name="refresh"),
    path("<slug:slug>/sign-in/", authorization.sign_in, name="sign_in"),
    path("<slug:slug>/sign-in/<uuid:uid>/", authorization.progress, name="sign_in_progress"),
    path("<slug:slug>/sign-in/<uuid:uid>/go/", authorization.go, name="sign_in_go"),
    path("<slug:slug>/retry/", verbs.retry, name="retry"),
    path("<slug:slug>/pause/", verbs.pause, name="pause"),
    path("<slug:slug>/resume/", verbs.resume, name="resume"),
    path("<slug:slug>/enable/", verbs.enable, name="enable"),
    path("<slug:slug>/disable/", verbs.disable, name="disable"),
    path("<slug:slug>/archive/", verbs.archive, name="archive"),
    path("<slug:slug>/restore/", verbs.restore, name="restore"),
    path("<slug:slug>/delete/", verbs.delete, name="delete"),
]

call_patterns = [
    path("<uuid:uid>/", calls.detail, name="detail"),
    path("<uuid:uid>/card/", calls.card, name="card"),
    path("<uuid:uid>/result.json", calls.result, name="result"),
    path("<uuid:uid>/values.json", completion.values, name="values"),
    path("<uuid:uid>/contents/<int:position>/", calls.content, name="content"),
    path("<uuid:uid>/cancel/", calls.cancel, name="cancel"),
    path("<uuid:uid>/repeat/", calls.repeat, name="repeat"),
]

inbox_patterns = [
    path("", inbox.index, name="list"),
    path("<uuid:uid>/", inbox.detail, name="detail"),
    path("<uuid:uid>/take/", inbox.take, name="take"),
    path("<uuid:uid>/answer/", inbox.answer, name="answer"),
]

subscription_patterns = [
    path("", subscriptions.board, name="list"),
    path("<uuid:uid>/", subscriptions.detail, name="detail"),
    path("<uuid:uid>/versions/<int:number>/", subscriptions.content, name="content"),
    path("<uuid:uid>/settings/", subscription_verbs.settings, name="settings"),
    path("<uuid:uid>/test/", subscription_verbs.test, name="test"),
    path("<uuid:uid>/end/", subscription_verbs.end, name="end"),
    path("<uuid:uid>/delete/", subscription_verbs.delete, name="delete"),
]

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("palette/", palette.palette, name="palette"),
    path("sessions/", sessions.index, name="sessions"),
    path("sign-in/callback/", authorization.callback, name="sign_in_callback"),
    path("oauth/client.json", authorization.client, name="oauth_client"),
    path("live/ticket/", live.ticket, name="live_ticket"),
    path("servers/", include((server_patterns, "servers"))),
    path("calls/", include((call_patterns, "calls"))),
    path("inbox/", include((inbox_patterns, "inbox"))),
    path("subscriptions/", include((subscription_patterns, "subscriptions"))),
]
