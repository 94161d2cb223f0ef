from django.conf import settings
from django.http import HttpRequest


def instance(request: HttpRequest) -> dict[str, str]:
    """What every page shows of this installation."""
    return {"instance_name": settings.INSTANCE_NAME}
