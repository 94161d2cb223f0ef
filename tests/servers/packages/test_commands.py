"""What a launcher's command line says of its package."""

import pytest

from servers.enums import Ecosystem
from servers.packages.commands import PackageCommand, Unpinnable, read

NPM, PYPI, IMAGE = Ecosystem.NPM, Ecosystem.PYPI, Ecosystem.IMAGE


def of(line: str) -> PackageCommand | None:
    command, *arguments = line.split()
    return read(command, arguments)


@pytest.mark.parametrize(
    ("line", "requirements", "version", "executable", "arguments"),
    [
        ("npx -y notes", ["notes"], "", "", []),
        ("npx -y @acme/notes@1.2.3 --port 80", ["@acme/notes@1.2.3"], "1.2.3", "", ["--port", "80"]),
        ("npx notes@latest /srv", ["notes@latest"], "", "", ["/srv"]),
        ("npx --tag next -p notes -p helper@2 run", ["notes@next", "helper@2"], "", "run", []),
        ("npx --yes --package=notes@^1 -p helper run -x", ["notes@^1", "helper"], "", "run", ["-x"]),
        ("/usr/bin/npx --registry https://npm.example notes", ["notes"], "", "", []),
        ("npm exec --yes notes -- --flag", ["notes"], "", "", ["--flag"]),
        ("bunx notes", ["notes"], "", "", []),
        ("pnpm dlx notes@2.0.0-rc.1 a", ["notes@2.0.0-rc.1"], "2.0.0-rc.1", "", ["a"]),
        ("yarn dlx -q notes", ["notes"], "", "", []),
    ],
)
def test_an_npm_launcher_names_its_package(
    line: str, requirements: list[str], version: str, executable: str, arguments: list[str]
) -> None:
    found = of(line)
    assert found is not None
    assert (found.ecosystem, list(found.requirements), found.version) == (NPM, requirements, version)
    assert (found.executable, list(found.arguments)) == (executable, arguments)


@pytest.mark.parametrize(
    ("line", "requirements", "version", "executable", "arguments"),
    [
        ("uvx notes", ["notes"], "", "notes", []),
        ("uvx notes@1.2.3 --tz UTC", ["notes==1.2.3"], "1.2.3", "notes", ["--tz", "UTC"]),
        ("uvx notes@latest", ["notes"], "", "notes", []),
        ("uvx --from notes[web]==1.2 run x", ["notes[web]==1.2"], "1.2", "run", ["x"]),
        ("uvx --with helper>=2 --python 3.12 notes", ["notes", "helper>=2"], "", "notes", []),
        (
            "uvx --with mcp>=1,<2 --with a[b,c],d>=1,!=2 notes",
            ["notes", "mcp>=1,<2", "a[b,c]", "d>=1,!=2"],
            "",
            "notes",
            [],
        ),
        ("uv tool run notes a", ["notes"], "", "notes", ["a"]),
        ("pipx run --spec notes==1.0 run-notes", ["notes==1.0"], "1.0", "run-notes", []),
    ],
)
def test_a_python_launcher_names_its_package(
    line: str, requirements: list[str], version: str, executable: str, arguments: list[str]
) -> None:
    found = of(line)
    assert found is not None
    assert (found.ecosystem, list(found.requirements), found.version) == (PYPI, requirements, version)
    assert (found.executable, list(found.arguments)) == (executable, arguments)


@pytest.mark.parametrize(
    ("line", "name", "before", "arguments"),
    [
        ("docker run -i --rm acme/notes", "acme/notes", ["run", "-i", "--rm"], []),
        ("docker run -it -e KEY=1 --name n reg.example:5000/a/b:2 x -y", "reg.example:5000/a/b", ["run", "-it", "-e", "KEY=1", "--name", "n"], ["x", "-y"]),
        ("podman run --mount=type=tmpfs,dst=/x -v/a:/b notes", "notes", ["run", "--mount=type=tmpfs,dst=/x", "-v/a:/b"], []),
        ("docker run -i -- notes -y", "notes", ["run", "-i", "--"], ["-y"]),
        ("podman run --passwd --unsetenv-all notes", "notes", ["run", "--passwd", "--unsetenv-all"], []),
        ("docker run --pull=always -ie KEY notes", "notes", ["run", "-ie", "KEY"], []),
        ("docker run --pull always -e --pull -i notes", "notes", ["run", "-e", "--pull", "-i"], []),
    ],
)  # fmt: skip
def test_a_container_launcher_names_its_image(line: str, name: str, before: list[str], arguments: list[str]) -> None:
    found = of(line)
    assert found is not None
    assert (found.ecosystem, found.name, list(found.before), list(found.arguments)) == (IMAGE, name, before, arguments)


@pytest.mark.parametrize(
    "line",
    [
        "npx -c notes",
        "npx github:acme/notes",
        "npx ./notes",
        "npx -y https://acme.example/notes.tgz",
        "npm exec notes --flag",
        "npm init notes",
        "uvx --from git+https://acme.example/notes notes",
        "uvx --with-editable . notes",
        "uvx python -c x",
        "uvx ./notes",
        "env A=1 npx notes",
        "docker compose run notes",
        "docker run",
        "podman run --rootfs /srv/system notes",
        "deno run jsr:@acme/notes",
    ],
)
def test_what_names_no_package_of_a_registry_cannot_be_pinned(line: str) -> None:
    with pytest.raises(Unpinnable):
        of(line)


def test_more_than_a_pin_can_hold_is_not_pinned() -> None:
    with pytest.raises(Unpinnable, match="too long to be pinned"):
        of(f"npx {' '.join(f'--package=some-notes-{number}' for number in range(200))} run")


@pytest.mark.parametrize("line", ["python server.py", "node index.js", "npm start", "docker ps"])
def test_other_programs_have_no_package(line: str) -> None:
    assert of(line) is None


def test_options_of_the_registry_belong_to_what_was_requested_and_arguments_do_not() -> None:
    lines = ("npx notes a", "npx notes b", "npx --registry=https://npm.example notes a")
    plain, other, elsewhere = (found.requested if (found := of(line)) else "" for line in lines)
    assert plain == other != elsewhere


def test_the_value_of_an_option_that_looks_like_another_option_is_none() -> None:
    found = of("docker run -e --platform acme/notes")
    assert found is not None
    assert (found.name, found.options) == ("acme/notes", ())
