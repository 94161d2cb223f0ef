from django.db import models

from sessions.enums import CallState

#: inclusive upper bounds of the latency buckets in ms; five per decade, so that a percentile is off by at most a third
#: of its value
LATENCY_BOUNDS_MS = (
    1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1_000, 2_000, 3_000, 5_000, 7_000, 10_000, 20_000,
    30_000, 50_000, 70_000, 100_000, 200_000, 300_000, 500_000,
)  # fmt: skip


def _count() -> "models.PositiveBigIntegerField[int, int]":
    return models.PositiveBigIntegerField(default=0)


class RollupLevel(models.IntegerChoices):
    """The length of a roll-up's time slot, in seconds."""

    MINUTE = 60
    HOUR = 3_600
    DAY = 86_400


class RollupBy(models.TextChoices):
    """The dimensions of a roll-up besides method, way and state. Each call is counted once under each."""

    TOTAL = "total"
    SERVER = "server"
    TOOL = "tool"  # server and target
    CALLER = "caller"


class CallRollup(models.Model):
    """Number of final calls, their latency and bytes in one time slot. Dimensions that `by` does not include are empty.
    Written only by `sessions.statistics.counting`."""

    level = models.PositiveIntegerField(choices=RollupLevel)
    start = models.BigIntegerField()  # Unix time in seconds: both databases divide it by a step
    by = models.CharField(max_length=8, choices=RollupBy)
    cell = models.CharField(max_length=32)  # digest of all dimensions: a target is too long for an index
    server_uid = models.UUIDField(null=True)  # null also for a server that was deleted before the call was counted
    server_name = models.CharField(max_length=120, blank=True)
    target = models.TextField(blank=True)
    user_name = models.CharField(max_length=150, blank=True)
    owner_id = models.BigIntegerField(
        default=0
    )  # set for calls through a person's own session: visible to that user; 0: visible to all
    method = models.CharField(max_length=60)
    way = models.CharField(max_length=16, blank=True)
    state = models.CharField(max_length=16, choices=CallState)
    calls = _count()
    bytes = _count()  # of arguments and results
    within_1 = _count()
    within_2 = _count()
    within_3 = _count()
    within_5 = _count()
    within_7 = _count()
    within_10 = _count()
    within_20 = _count()
    within_30 = _count()
    within_50 = _count()
    within_70 = _count()
    within_100 = _count()
    within_200 = _count()
    within_300 = _count()
    within_500 = _count()
    within_700 = _count()
    within_1000 = _count()
    within_2000 = _count()
    within_3000 = _count()
    within_5000 = _count()
    within_7000 = _count()
    within_10000 = _count()
    within_20000 = _count()
    within_30000 = _count()
    within_50000 = _count()
    within_70000 = _count()
    within_100000 = _count()
    within_200000 = _count()
    within_300000 = _count()
    within_500000 = _count()
    beyond = _count()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["cell", "level", "start"], name="one_rollup_a_cell")]
        indexes = [
            models.Index(fields=["by", "level", "start"], name="rollups_by_time"),
            models.Index(
                fields=["server_uid", "by", "level", "start"],
                name="rollups_of_server",
                condition=models.Q(server_uid__isnull=False),
            ),
            models.Index(
                fields=["user_name", "level", "start"], name="rollups_of_caller", condition=models.Q(by=RollupBy.CALLER)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.by} {self.start}+{self.level}: {self.calls}"


class RollupCursor(models.Model):
    """The progress of counting: calls up to `call_id` are counted, or listed as `UncountedCall`. A single row."""

    call_id = models.BigIntegerField(default=0)
    version = models.PositiveBigIntegerField(default=0)  # increases with each batch: reveals a half-read one
    repaired_until = models.BigIntegerField(default=0)  # Unix time: hours before it were compared with the calls

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"call {self.call_id}"


class UncountedCall(models.Model):
    """A call that had no final state yet when the cursor passed it."""

    call_id = models.BigIntegerField(primary_key=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"call {self.call_id}"
