"""Every page and action around servers, sessions and calls. Mounted at the root."""

from django.urls import include, path

from sessions.views import calls, catalog, live, overview, palette, registration, servers, verbs

server_patterns = [
    path("", servers.index, name="list"),
    path("add/", registration.add, name="add"),
    path("demo/", registration.add_demo, name="demo"),
    path("test/", registration.test, name="test"),
    path("test/<uuid:uid>/", registration.test_progress, name="test_progress"),
    path("<slug:slug>/", servers.detail, name="detail"),
    path("<slug:slug>/tools/", catalog.tools, name="tools"),
    path("<slug:slug>/tools/form/", catalog.tool_form, name="tool_form"),
    path("<slug:slug>/resources/", catalog.resources, name="resources"),
    path("<slug:slug>/prompts/", catalog.prompts, name="prompts"),
    path("<slug:slug>/logs/", catalog.logs, name="logs"),
    path("<slug:slug>/history/", catalog.history, name="history"),
    path("<slug:slug>/settings/", registration.edit, name="settings"),
    path("<slug:slug>/info/", servers.info, name="info"),
    path("<slug:slug>/clone/", registration.clone, name="clone"),
    path("<slug:slug>/call/", calls.place, name="call"),
    path("<slug:slug>/connect/", verbs.connect, name="connect"),
    path("<slug:slug>/disconnect/", verbs.disconnect, name="disconnect"),
    path("<slug:slug>/reconnect/", verbs.reconnect, name="reconnect"),
    path("<slug:slug>/refresh/", verbs.refresh, name="refresh"),
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
    path("<uuid:uid>/cancel/", calls.cancel, name="cancel"),
    path("<uuid:uid>/repeat/", calls.repeat, name="repeat"),
]

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("palette/", palette.palette, name="palette"),
    path("live/ticket/", live.ticket, name="live_ticket"),
    path("servers/", include((server_patterns, "servers"))),
    path("calls/", include((call_patterns, "calls"))),
]
