"""The security headers of responses, whichever part of the web process writes them."""

from django.conf import settings

_FEATURES = """accelerometer camera display-capture geolocation gyroscope magnetometer microphone midi payment
    publickey-credentials-get screen-wake-lock serial usb xr-spatial-tracking"""


#: These apply to documents. On a style sheet, a script or a font they have no effect, and would be a tenth of the size
#: of a page on first load.
_OF_DOCUMENTS = ("Content-Security-Policy", "Permissions-Policy", "Cross-Origin-Opener-Policy", "X-Frame-Options")
_NO_DOCUMENTS = ("text/css", "text/javascript", "font/")


def headers_for(content_type: str, *, secure: bool) -> dict[str, str]:
    found = security_headers(secure=secure)
    if content_type.startswith(_NO_DOCUMENTS):
        return {name: value for name, value in found.items() if name not in _OF_DOCUMENTS}
    return found


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
