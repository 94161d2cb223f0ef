"""Servers that exchange tokens signed by others: a platform, or an identity provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joserfc.jwk import ECKey

from tests.peers import token_issuer
from tests.peers.peers import free_port, start_peer

SLUGS = ("workload", "enterprise")
PROVIDER_SECRET = "canary-provider/6d20+f1b847"
_CLIENT_THERE = "robot-there"


@dataclass
class Federated:
    """`slug`: of the server, also the kind of its credential. `token`: the content of the credential's file."""

    slug: str
    url: str
    file: Path
    token: str = ""

    @property
    def issuer(self) -> str:
        return self.url.removesuffix("/mcp")

    def entered(self) -> dict[str, str]:
        own = {"name": self.slug, "client": "robot", "issuer": self.issuer, "url": self.url}
        own["token"] = f"${{file:{self.file}}}"
        if self.slug == "workload":
            return own
        provider = {"provider": f"{self.issuer}/provider/token", "provider_client": _CLIENT_THERE}
        return own | provider | {"provider_secret": PROVIDER_SECRET, "secret": ""}

    def sign(self, key: ECKey) -> None:
        self.token = token_issuer.signed(key, self.issuer if self.slug == "workload" else _CLIENT_THERE)
        self.file.write_text(self.token)


@contextmanager
def federated(folder: Path, log: Path) -> Iterator[list[Federated]]:
    """One server of each kind. `folder` is a folder that the operator allows for references."""
    key = ECKey.generate_key("P-256")
    env = token_issuer.environment(key, log, PROVIDER_SECRET)
    peers = [start_peer("protected", port=free_port(), env=env) for _ in SLUGS]
    try:
        made = [Federated(slug, peer.url, folder / slug) for slug, peer in zip(SLUGS, peers, strict=True)]
        for each in made:
            each.sign(key)
        yield made
    finally:
        for peer in peers:
            peer.kill()
