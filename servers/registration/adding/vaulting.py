"""A new server whose secrets become credentials of the vault, so that other servers can use them too."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, ValueKind
from servers.models import Credential, Server
from servers.registration import registering
from servers.secret import Secret

_NAME_LENGTH = 110


def register(
    actor: Actor,
    user: Any,
    data: Registration,
    vaulted: Collection[tuple[str, str]] = (),
    chosen: Sequence[Credential] = (),
) -> Server:
    """`vaulted`: keys of the secret values that become credentials. None is left behind if the server is rejected."""
    made: list[Credential] = []
    kept: list[ValueInput] = []
    try:
        for value in data.values:
            if value.key in vaulted and isinstance(value.value, Secret):
                name = _free_name(f"{data.name} {value.name}")
                made.append(vault.create(actor, user, name, _parts(value, value.value), data.url))
            else:
                kept.append(value)
        return registering.register(actor, user, replace(data, values=kept), chosen=[*chosen, *made])
    except BaseException:  # whatever failed, leave no credential behind
        for credential in made:
            vault.delete(actor, user, credential)
        raise


def _parts(value: ValueInput, secret: Secret) -> Parts:
    if value.kind == ValueKind.ENVIRONMENT:
        return Parts(CredentialKind.ENVIRONMENT, {"variable": value.name}, {"value": secret})
    scheme, _, token = secret.reveal().partition(" ")
    if value.name.lower() == "authorization" and scheme.lower() == "bearer" and token.strip():
        return Parts(CredentialKind.BEARER, {}, {"token": Secret(token.strip())})
    return Parts(CredentialKind.HEADER, {"header": value.name}, {"value": secret})


def _free_name(name: str) -> str:
    name = name[:_NAME_LENGTH]
    taken = {one.lower() for one in Credential.objects.filter(name__istartswith=name).values_list("name", flat=True)}
    number = 1
    while (free := name if number == 1 else f"{name} ({number})").lower() in taken:
        number += 1
    return free
