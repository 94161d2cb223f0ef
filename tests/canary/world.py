"""A product with secrets of every kind, among servers that leak them in every way."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.canary import federated
from tests.canary.careless import SCENARIOS, Careless
from tests.e2e import signing_in
from tests.e2e.sockets import Visitor
from tests.peers.peers import Peer, free_port, peer_command, start_peer
from tests.tools.stack import ADMIN, Stack

SECRETS = {
    "bearer": "canary-bearer/5b+8e0d77a1",
    "header": "canary-head&<6c19f2b4>'x'",
    "basic": 'canary-basic"73aa&e81c04',
    "environment": 'canary-env"7f3a91<c2d4&=5',
    "variable": "canary-variable/c41+d80e2f",
    "file": 'canary-file"9a0c&77d1<e3',
    "client": "canary-client/20f4+b96e13",
    "account": "canary-account/81be+4d20a9",
    "provider": federated.PROVIDER_SECRET,
    "import": "canary-import/e8d1+05ab77",
    "refused": "canary-refused/aa07+31d9c4",
}
#: the proof key of the grant, which only the vault holds
PROOF_KEY = """
import json
from servers.credentials import grants
from servers.credentials.binding import place_of
from servers.models import CredentialUse
identity = CredentialUse.objects.get(credential__kind="oauth").identity
print(json.loads(grants.load(identity.pk, place_of(identity.server)).text.reveal())["dpop_key"])
"""
LOCAL = ("traceback", "garbage", "crash", "errors")
SECONDS = 90


@dataclass
class World:
    stack: Stack
    visitor: Visitor
    careless: Careless
    #: has no credential
    stranger: Careless
    protected: str
    #: two more servers, whose authorization servers each know a service account: one by secret, one by key
    accounts: tuple[str, ...]
    account_key: rsa.RSAPrivateKey
    federated: list[federated.Federated]
    secrets: dict[str, str] = field(default_factory=lambda: dict(SECRETS))

    def uid(self, slug: str) -> str:
        return str(UUID(self.stack.rows("SELECT uid FROM servers_server WHERE slug = ?", slug)[0]["uid"]))

    def post(self, path: str, *statuses: int, **data: str) -> httpx.Response:
        answer = self.visitor.post(path, data)
        assert answer.status_code in (statuses or (200, 302, 303)), (path, answer.status_code, answer.text[:3000])
        return answer

    def until(self, true: Callable[[], object], words: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < deadline, f"{words}\n{self.stack.output[-3000:]}"
            time.sleep(0.2)  # no event reports rows of another process


@contextmanager
def world(stack: Stack, folder: Path) -> Iterator[World]:
    """`stack` runs with the environment from `settings` and has its first administrator."""
    log = folder / "protected.log"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    by_secret = {"PROTECTED_ACCOUNT": f"robot:{SECRETS['account']}"}
    by_key = {"PROTECTED_ACCOUNT": "robot:", "PROTECTED_ACCOUNT_KEY": public_pem(key)}
    peers = [_protected(log, **environment) for environment in ({"PROTECTED_DPOP": "1"}, by_secret, by_key)]
    try:
        with Careless() as stranger, Careless(stranger.url) as careless, federated.federated(folder, log) as trusting:
            protected, *accounts = (peer.url for peer in peers)
            made = World(stack, Visitor(stack), careless, stranger, protected, tuple(accounts), key, trusting)
            _register(made, folder)
            yield made
    finally:
        for peer in peers:
            peer.kill()


def _protected(log: Path, **environment: str) -> Peer:
    return start_peer("protected", port=free_port(), env={"PROTECTED_LOG": str(log), **environment})


def settings(folder: Path) -> dict[str, str]:
    (folder / "reference").write_text(SECRETS["file"])
    offered = {"MCPADMIN_REFERENCE_VARIABLES": "REF_TOKEN", "MCPADMIN_REFERENCE_FOLDERS": str(folder)}
    return offered | {"REF_TOKEN": SECRETS["variable"]}


# --- servers -----------------------------------------------------------------------------------------------------------
def _register(made: World, folder: Path) -> None:
    """In one process, because each start of manage.py costs seconds."""
    command, words = peer_command("telltale")
    reference = f"REFERENCE=${{file:{folder / 'reference'}}}"
    own = ("--secret-env=API_TOKEN=GIVEN_ENV", f"--env={reference}")
    orders = [
        ("--name=Environment", *own, "--", command, *words),
        ("--name=Neighbour", "--", command, *words),
        ("--name=Protected", f"--url={made.protected}"),
        ("--name=By secret", f"--url={made.accounts[0]}", "--disabled"),
        ("--name=By key", f"--url={made.accounts[1]}", "--disabled"),
        *((f"--name={each.slug}", f"--url={each.url}", "--disabled") for each in made.federated),
        ("--name=Encrypted", "--disabled", f"--url=https://127.0.0.1:{made.careless.server_address[1]}/mcp"),
    ]
    orders += [_behind_url(made, name) for name in SCENARIOS]
    script = str(Path(__file__).with_name("careless_stdio.py"))
    orders += [(f"--name={how}", *own, "--", command, script, how) for how in LOCAL]
    given = {"GIVEN_ENV": SECRETS["environment"], "GIVEN_HEADER": SECRETS["header"]}
    program = "from django.core.management import call_command\nfor words in {}: call_command(*words)"
    whole = [("register_server", f"--user={ADMIN[0]}", *order) for order in orders]
    made.stack.manage("shell", "--no-imports", "-c", program.format(whole), env=given)


def _behind_url(made: World, name: str) -> tuple[str, ...]:
    headers = ("--secret-header=X-Api-Key=GIVEN_HEADER", "--header=X-Ref=${REF_TOKEN}")
    return (
        f"--name={name}",
        "--disabled",
        *headers,
        "--transport=streamable_http",
        f"--url={made.careless.url}/{name}",
    )


# --- credentials -------------------------------------------------------------------------------------------------------
def fill_the_vault(made: World) -> None:
    """Through the pages. The careless servers get the bearer token and the password in turn, then try to connect."""
    place = {"url": made.careless.url}
    found = [
        _sealed(made, "bearer", name="Token", token=SECRETS["bearer"], **place),
        _sealed(made, "basic", name="Password", user="ada", password=SECRETS["basic"], **place),
    ]
    for number, name in enumerate(SCENARIOS):
        made.post(f"/credentials/for/{name}/", credential=found[number % 2])
        made.post(f"/servers/{name}/enable/")
    certificate, key = a_certificate()
    made.secrets["key"] = key.splitlines()[5]
    secured = {"url": made.careless.url.replace("http", "https"), "certificate": certificate, "key": key}
    made.post("/credentials/for/encrypted/", credential=_sealed(made, "certificate", name="Certificate", **secured))
    made.post("/servers/encrypted/enable/")
    _give_accounts(made)
    _give_federated(made)
    ring = json.loads((made.stack.data_dir / "keyring.json").read_text())
    made.secrets["ring"] = ring["keys"][ring["current"]]
    made.secrets["installation"] = (made.stack.data_dir / "secret_key").read_text().strip()


def _give_accounts(made: World) -> None:
    """One authenticates with a secret, the other signs with a private key."""
    key = private_pem(made.account_key)
    made.secrets["account key"] = key.splitlines()[5]
    proofs = ({"secret": SECRETS["account"], "key": ""}, {"secret": "", "key": key})
    for slug, url, proof in zip(("by-secret", "by-key"), made.accounts, proofs, strict=True):
        account = {"name": slug, "client": "robot", "issuer": url.removesuffix("/mcp"), "url": url}
        made.post(f"/credentials/for/{slug}/", credential=_sealed(made, "service_account", **account, **proof))
        made.post(f"/servers/{slug}/enable/")


def _give_federated(made: World) -> None:
    """Files hold the tokens that others signed."""
    for each in made.federated:
        made.secrets[f"token of {each.slug}"] = each.token
        made.post(f"/credentials/for/{each.slug}/", credential=_sealed(made, each.slug, **each.entered()))
        made.post(f"/servers/{each.slug}/enable/")


def _sealed(made: World, kind: str, **data: str) -> str:
    return made.post(f"/credentials/add/?kind={kind}", 302, **data).headers["location"].split("/")[-2]


def a_certificate() -> tuple[str, str]:
    """(certificate, key), both PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "canary")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(), private_pem(key)


def private_pem(key: rsa.RSAPrivateKey) -> str:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def public_pem(key: rsa.RSAPrivateKey) -> str:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form).decode()


# --- the others --------------------------------------------------------------------------------------------------------
def hold_an_import(made: World) -> str:
    """Start an import and leave it unconfirmed. Returns the path of its preview."""
    entry = {"command": "npx", "args": ["-y", "server"], "env": {"API_TOKEN": SECRETS["import"]}}
    document = json.dumps({"mcpServers": {"held": entry}})
    return made.post("/servers/import/", 302, text=document).headers["location"]


def send_a_webhook(made: World) -> str:
    """Register and test a webhook to a careless receiver. The page shows the signing secret once. Returns the path of
    the subscription."""
    made.post("/servers/environment/subscribe/", 302, 303, uri="told://environment")
    uid = UUID(made.stack.rows("SELECT uid FROM mcp_sessions_subscription")[0]["uid"])
    page = f"/subscriptions/{uid}/"
    order = {"_section": "webhook", "webhook_url": f"{made.careless.url}/echo-500"}
    shown = re.search(r"whsec_[\w+/=-]+", made.post(f"{page}settings/", 200, **order).text)
    assert shown is not None
    made.secrets["webhook"] = shown[0].removeprefix("whsec_")
    made.post(f"{page}test/")
    return page


def sign_in(made: World) -> None:
    """Sign in with a manually registered client, and record the tokens and the proof key."""
    made.secrets["code"] = signing_in.signed_in(
        made.stack, made.visitor, made.protected, "protected", SECRETS["client"]
    )
    made.secrets["access"], made.secrets["refresh"] = _tokens(made.protected)
    made.secrets["proof key"] = json.loads(made.stack.shell(PROOF_KEY))["d"]


def know_the_tokens_of_accounts(made: World) -> None:
    for slug, url in zip(("by-secret", "by-key"), made.accounts, strict=True):
        made.secrets[f"access {slug}"] = next(token for token in _tokens(url) if "access" in token)
    for each in made.federated:
        made.secrets |= {f"{number} given to {each.slug}": token for number, token in enumerate(_tokens(each.url))}


def _tokens(url: str) -> list[str]:
    found: list[str] = httpx.get(url.replace("/mcp", "/control/tokens"), trust_env=False).json()
    return found
