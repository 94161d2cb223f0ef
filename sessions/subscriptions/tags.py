"""Labels and icons of subscriptions and of webhook deliveries, one table for all pages."""

from django import template

from sessions.enums import DeliveryState, SubscriptionState, VersionCause

register = template.Library()

# state: (the kit's tone, icon)
_STATES: dict[str, tuple[str, str]] = {
    SubscriptionState.WAITING: ("warn", "clock"),
    SubscriptionState.REQUESTED: ("run", "loader-2"),
    SubscriptionState.LISTENING: ("ok", "rss"),
    SubscriptionState.REFUSED: ("bad", "ban"),
    SubscriptionState.LOST: ("bad", "plug-x"),
    SubscriptionState.ENDED: ("", "player-stop"),
}
_DELIVERIES: dict[str, tuple[str, str]] = {
    DeliveryState.PENDING: ("run", "clock"),
    DeliveryState.DELIVERED: ("ok", "check"),
    DeliveryState.GIVEN_UP: ("bad", "alert-circle"),
}


@register.inclusion_tag("calls/_pill.html")
def subscription_pill(state: str) -> dict[str, str]:
    tone, icon = _STATES[state]
    return {"tone": tone, "icon": icon, "word": SubscriptionState(state).label}


@register.inclusion_tag("calls/_pill.html")
def delivery_pill(state: str) -> dict[str, str]:
    tone, icon = _DELIVERIES[state]
    return {"tone": tone, "icon": icon, "word": DeliveryState(state).label}


@register.filter
def cause_word(cause: str) -> str:
    return str(VersionCause(cause).label)
