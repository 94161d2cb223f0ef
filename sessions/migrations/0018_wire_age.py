"""The age limit of recorded protocol messages moves from MCPADMIN_WIRE_DAYS to the limits of the *Storage* page."""

from math import ceil

from django.conf import settings
from django.db import migrations

DAYS = 7


def take_over(apps, schema_editor):
    """The shorter of the two limits, as both applied before."""
    limits = apps.get_model("mcp_sessions", "RetentionLimit").objects
    days = DAYS if settings.WIRE_DAYS is None else max(1, ceil(settings.WIRE_DAYS))
    limit, _ = limits.get_or_create(kind="messages")
    limit.days = days if limit.days is None else min(limit.days, days)
    limit.save()


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0017_agent_rounds")]

    operations = [migrations.RunPython(take_over, migrations.RunPython.noop)]
