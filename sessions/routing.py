from django.urls import path

from sessions.consumers.live import LiveConsumer

websocket_urlpatterns = [path("ws/", LiveConsumer.as_asgi())]
