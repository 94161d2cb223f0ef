"""The security headers that every answer carries, whichever part of the web process writes it."""

from django.conf import settings

_FEATURES = """accelerometer camera display-capture geolocation gyroscope magnetometer microphone midi payment
    publickey-credentials-get screen-wake-lock serial usb xr-spatial-tracking"""


def security_headers(*, secure: bool = False) -> dict[str, str]:
    """`secure`: the request came over TLS, so the answer may ask for TLS from now on."""
    found = {
        "Permissions-Policy": ", ".join(f"{feature}=()" for feature in _FEATURES.split()),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
    }
    if not settings.DEBUG:  # Django's debug pages have inline scripts and styles
        directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
        found["Content-Security-Policy"] = "; ".join(
            f"{name} {' '.join(values)}" for name, values in directives.items()
        )
    if secure and settings.SECURE_HSTS_SECONDS:
        found["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
    return found
