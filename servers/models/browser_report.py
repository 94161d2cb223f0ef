from django.db import models


class BrowserReport(models.Model):
    """Something that a browser refused to load or run because of the content security policy: one row for each cause,
    with a count. Addresses are kept without query and fragment."""

    digest = models.CharField(max_length=64, unique=True)
    directive = models.CharField(max_length=60)
    blocked = models.CharField(max_length=300)
    page = models.CharField(max_length=300)
    source = models.CharField(max_length=300, blank=True)  # file and line
    browser = models.CharField(max_length=60)
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        ordering = ["-last_at"]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.directive} {self.blocked}"
