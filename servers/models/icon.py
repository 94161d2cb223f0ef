from django.db import models

from servers.models.server import Server


class Icon(models.Model):
    """An image that a server names for itself or for a tool, as fetched by a worker: pages show this copy only."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="icons")
    digest = models.CharField(max_length=64)  # SHA-256 of its source, the URI that the server named
    mime = models.CharField(max_length=20, blank=True)
    data = models.BinaryField(null=True)  # null: it could not be fetched, see `problem`
    problem = models.CharField(max_length=200, blank=True)
    expires_at = models.DateTimeField()  # when it must be fetched again

    class Meta:
        constraints = [models.UniqueConstraint(fields=["server", "digest"], name="icon_once_a_server")]

    def __str__(self) -> str:
        return f"{self.server_id} {self.digest[:12]}"
