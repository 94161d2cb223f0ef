from django.urls import path

from sessions.live.consumer import LiveConsumer

websocket_urlpatterns = [path("ws/", LiveConsumer.as_asgi())]
