import uuid

from django.conf import settings
from django.db import models

from servers.enums import AuthorizationState
from servers.models.identity import Identity


class ServerAuthorization(models.Model):
    """One round trip of a person to an authorization server and back, for one identity of a server.

    It is looked up by the digest of its `state`, once, by the same person in the same browser. `sealed_pending` is what
    a worker needs to finish it; `sealed_url` where to send the browser; `sealed_answer` what the browser brought back.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="authorizations")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    browser = models.CharField(max_length=64)  # digest of the browser's session
    state = models.CharField(max_length=12, choices=AuthorizationState, default=AuthorizationState.REQUESTED)
    state_digest = models.CharField(max_length=64, blank=True, db_index=True)
    issuer = models.CharField(max_length=2000, blank=True)
    detail = models.TextField(blank=True)  # why it failed, in words
    sealed_client = models.BinaryField(null=True)  # manually registered id and secret
    sealed_pending = models.BinaryField(null=True)
    sealed_url = models.BinaryField(null=True)
    sealed_answer = models.BinaryField(null=True)
    client_key_id = models.CharField(max_length=40, blank=True)
    pending_key_id = models.CharField(max_length=40, blank=True)
    url_key_id = models.CharField(max_length=40, blank=True)
    answer_key_id = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "servers_signin"  # part of the context that seals its values, so it cannot change

    def __str__(self) -> str:
        return f"authorization {self.uid}"
