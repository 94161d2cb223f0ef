"""The built wheel starts the whole product through its command, installed without this checkout."""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.sessions.agents.product import ISSUE
from tests.tools.prepared import ADMIN, ROOT, clean_environment
from tests.tools.stack import Stack

SCOPES = ["mcp:list", "mcp:call"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel. Its dependencies are those of this environment: a registry is
    nothing that a test should need."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT, check=True)
    (wheel,) = directory.glob("*.whl")
    venv.create(directory / "venv", symlinks=True)
    python = directory / "venv" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel], check=True)
    (packages,) = (directory / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return python.with_name("mcpadmin")


class Installed(Stack):
    """The product as the wheel has it."""

    def __init__(self, command: Path, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.command = command
        self.program = (str(command),)

    def do(self, *words: str, **environment: str) -> str:
        """The command's output. It runs in a folder from which the checkout cannot be imported."""
        done = subprocess.run(
            [self.command, *words], cwd=self.data_dir, env=self.environment | environment,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def product(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    product = Installed(installed, tmp_path_factory.mktemp("wheel-data"))
    try:
        yield product.start()
    finally:
        product.close()
        shutil.rmtree(product.data_dir, ignore_errors=True)


@pytest.mark.long
@pytest.mark.up
@pytest.mark.slow
def test_the_installed_command_starts_the_product_and_calls_a_tool_of_it(product: Installed) -> None:
    """A first start: migrations, templates and static files come from the wheel."""
    page = httpx.get(product.setup_link, follow_redirects=True).text
    style = re.search(r'href="(/static/[^"]+\.css)"', page)
    assert style is not None
    assert httpx.get(product.base_url + style[1]).status_code == 200
    password = {"DJANGO_SUPERUSER_PASSWORD": ADMIN[1]}
    product.do("createsuperuser", "--noinput", "--username", ADMIN[0], "--email", "", **password)
    server = (str(product.command.with_name("python")), "-m", "mcpadmin.demo_server")
    product.do("register_server", "--user", ADMIN[0], "--name", "Sums", "--policy", "on_demand", "--", *server)
    code = ISSUE.format(name=ADMIN[0], servers=[], label="wheel", scopes=SCOPES, tools=[], addresses=[])
    token = product.do("shell", "--no-imports", "-c", code).split("TOKEN ", 1)[1].split()[0]
    reach = {"MCPADMIN_TOKEN": token, "MCPADMIN_URL": product.base_url}
    listed = [json.loads(line) for line in product.do("list", "sums", "--kind", "tools", **reach).splitlines()]
    assert "add" in [one["definition"]["name"] for one in listed]
    called = json.loads(product.do("call", "sums", "add", "--json", '{"a": 2, "b": 3}', **reach))
    assert called["structuredContent"] == {"sum": 5, "terms": [2, 3]}


def test_the_client_of_the_wheel_loads_no_django_and_keeps_its_data_apart_from_its_code(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, mcpadmin.command_line.verbs; from mcpadmin import installation\n"
        "print(sorted(name for name in ('django', 'celery', 'channels') if name in sys.modules))\n"
        "print(installation.default_data_dir(), installation.PROGRAM)"
    )
    home = clean_environment(HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "share"))
    done = subprocess.run(
        [installed.with_name("python"), "-c", code], cwd=tmp_path, env=home, capture_output=True, text=True, check=True
    )
    data = "/var/lib/mcpadmin" if os.geteuid() == 0 else str(tmp_path / "share" / "mcpadmin")
    assert done.stdout.splitlines() == ["[]", f"{data} mcpadmin"]


def test_the_documents_that_the_code_names_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "mcpadmin").rglob("*.py"))
    names = sorted(set(re.findall(r"""\bdocument\(["']([a-z-]+\.md)["']\)""", sources)))
    code = f"from mcpadmin.installation import document; print(*map(document, {names}), sep='\\n')"
    done = subprocess.run(
        [installed.with_name("python"), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "command-line.md" in names
    assert [Path(path).read_text() for path in done.stdout.splitlines()] == [
        (ROOT / "docs" / name).read_text() for name in names
    ]
