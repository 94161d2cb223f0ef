"""The versions of the HTTP API, mounted at /api/"""

from django.urls import include, path

from sessions.api import v1

urlpatterns = [path("v1/", include((v1.patterns(), "api-1"), namespace="api-1"))]
