"""Whether Redis answers, as far as this process knows: code that meets an error reports it here; one line is logged.

Libraries log a traceback for each failed attempt, some once a second. Here an outage is one line that says when it
ended, or two lines if it lasts: one when it is certain and one at its end.
"""

import threading
import time
from collections.abc import Callable

import structlog
from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from servers.threads import started

#: an outage that is over by then, such as a restart, is one line
ONE_LINE_SECONDS = 5.0
#: Once Redis answers again, each library may still find a connection that broke during the outage, on a busy machine
#: seconds later. That is not a new outage.
AFTERMATH_SECONDS = 30.0
ATTEMPT_SECONDS = 1.0
FIRST_PAUSE, LAST_PAUSE = 0.2, 2.0
log = structlog.get_logger(__name__)


class Outage:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watching = False
        self._said_at = float("-inf")
        self._watchers: list[Callable[[], None]] = []
        #: monotonic time since which Redis has not answered; None while it answers
        self.since: float | None = None

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called, in some thread, when an outage begins and when it ends."""
        with self._lock:
            self._watchers.append(changed)

    def noticed(self, problem: BaseException | str) -> None:
        """Report a failure that looks as if Redis were unreachable. From any thread; never blocks."""
        with self._lock:
            if self._watching:
                return
            self._watching = True
        words = problem if isinstance(problem, str) else type(problem).__name__
        if not started(threading.Thread(target=self._follow, args=(words,), name="redis-outage", daemon=True)):
            self._watching = False  # the next failure is noticed again

    def _follow(self, problem: str) -> None:
        began, pause, said = time.monotonic(), FIRST_PAUSE, False
        while not _answers():
            if self.since is None:
                self.since = began
                self._notify()
            if not said and time.monotonic() - began > ONE_LINE_SECONDS:
                said = True
                log.warning("redis.unreachable", problem=problem, since_seconds=round(time.monotonic() - began, 1))
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)
        answered_at_once = self.since is None
        self.since = None
        now = time.monotonic()
        with self._lock:
            of_the_last = answered_at_once and now - self._said_at < AFTERMATH_SECONDS
            if not of_the_last:
                self._said_at = now
            self._watching = False
        if not of_the_last:
            log.warning("redis.reachable_again", problem=problem, after_seconds=round(now - began, 1))
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for changed in watchers:
            changed()


def _answers() -> bool:
    url = settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]
    times = {"socket_timeout": ATTEMPT_SECONDS, "socket_connect_timeout": ATTEMPT_SECONDS}
    try:
        with Redis.from_url(url, retry=Retry(NoBackoff(), 0), **times) as redis:
            return bool(redis.ping())
    except (RedisError, OSError):
        return False


outage = Outage()
