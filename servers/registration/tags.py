"""Template tags for the server form: what a server's process and its references get from the worker."""

from django import template
from django.template import Context

from servers.credentials import reference_grants
from servers.registration.inherited import inherited

register = template.Library()


@register.simple_tag
def inherited_words() -> str:
    """The variables that every stdio server gets, by name."""
    names = ", ".join(inherited())
    base = "The server gets the worker's PATH, LANG and TZ, its own home folder, and the variables below."
    if names:
        return f"{base} MCPADMIN_INHERITED_VARIABLES adds {names}."
    return f"{base} Operators can add others, such as proxy variables, with MCPADMIN_INHERITED_VARIABLES."


@register.simple_tag(takes_context=True)
def granted_words(context: Context) -> str:
    """The references that the current user may use."""
    granted = reference_grants.granted_to(context["request"].user)
    if granted is reference_grants.ALL:
        return "You can use every reference that the worker provides."
    if not granted:
        return "No reference is granted to you. An administrator can grant them by name."
    return f"References granted to you: {', '.join(f'${{{name}}}' for name in sorted(granted))}."
