import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class SavedView(models.Model):
    """A person's named explorer query, optionally shared with everyone who may open the explorer. Which rows it shows
    depends on the permissions of the reader who opens it."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    query = models.TextField()
    columns = models.CharField(max_length=200, blank=True)  # empty: the columns shown by default
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "pk"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_saved_view_a_name")]
        indexes = [models.Index(fields=["name"], name="shared_views", condition=Q(shared=True))]

    def __str__(self) -> str:
        return self.name
