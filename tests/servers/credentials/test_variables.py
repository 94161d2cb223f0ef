"""Which variables a credential fills: those that the registration leaves to it, and none that decides what runs."""

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from servers.audit.record import Actor
from servers.credentials import variables, vault
from servers.credentials.kinds import Parts
from servers.credentials.variables import command_refusal, fillable
from servers.enums import AuditAction, CredentialKind, SignsInAs
from servers.models import AuditEvent, Credential, CredentialUse, Server
from servers.registration import registering
from servers.registration.resolved_values import NotLaunchable, launch_values
from servers.secret import Secret
from servers.validators import effect_on_execution
from tests.servers.cast import over_stdio, variable
from tests.servers.conftest import person

DANGEROUS = """
LD_PRELOAD LD_AUDIT DYLD_INSERT_LIBRARIES GLIBC_TUNABLES BASH_ENV ENV SHELLOPTS PS4 PROMPT_COMMAND PYTHONPATH
PYTHONSTARTUP PYTHONHOME PYTHONWARNINGS PYTHONINSPECT NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS PERL5OPT PERL5LIB
PERL5DB RUBYOPT RUBYLIB GEM_HOME BUNDLE_GEMFILE JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH
GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_EXEC_PATH npm_config_registry NPM_CONFIG_NODE_OPTIONS
npm_Config_script_shell UV_INDEX_URL UV_PYTHON PIP_INDEX_URL PIP_CONFIG_FILE PATH HOME IFS TMPDIR XDG_CONFIG_HOME
GCONV_PATH LOCPATH ELECTRON_RUN_AS_NODE DOTNET_STARTUP_HOOKS COMPlus_Profiler CORECLR_PROFILER PHPRC PHP_INI_SCAN_DIR
LUA_INIT LUA_INIT_5_4 EDITOR VISUAL PAGER GIT_PAGER LESSOPEN BROWSER OPENSSL_CONF OPENSSL_MODULES SSL_CERT_FILE
REQUESTS_CA_BUNDLE http_proxy HTTPS_PROXY all_proxy SSH_ASKPASS SUDO_ASKPASS RUSTC_WRAPPER CARGO_HOME GOFLAGS GOPROXY
CC TAR_OPTIONS KUBECONFIG DOCKER_CONFIG AWS_CONFIG_FILE DBUS_SESSION_BUS_ADDRESS KRB5_CONFIG ODBCSYSINI MAKEFLAGS
PLAYWRIGHT_BROWSERS_PATH CONDA_PREFIX DJANGO_SETTINGS_MODULE COVERAGE_PROCESS_START YARN_RC_FILENAME PNPM_HOME
BUN_INSTALL DENO_DIR R_PROFILE_USER JULIA_LOAD_PATH ERL_FLAGS
"""
DATA = """
API_TOKEN API_KEY GITHUB_TOKEN GITHUB_PERSONAL_ACCESS_TOKEN GH_TOKEN GITLAB_TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY
GOOGLE_API_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION SLACK_BOT_TOKEN NOTION_TOKEN DATABASE_URL PGPASSWORD
REDIS_URL SENTRY_AUTH_TOKEN JIRA_API_TOKEN LINEAR_API_KEY HF_TOKEN BRAVE_API_KEY NPM_TOKEN JUPYTER_TOKEN NINJA_API_KEY
TAVILY_API_KEY FIGMA_API_KEY PROGRAM CODE LEVEL
"""


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_a_variable_that_decides_what_runs_is_known(name: str) -> None:
    assert effect_on_execution(name)


@pytest.mark.parametrize("name", DATA.split())
def test_a_variable_of_known_servers_is_data(name: str) -> None:
    assert effect_on_execution(name) == ""


def of_variable(name: str = "API_TOKEN", value: str = "token-of-my-own") -> Parts:
    return Parts(CredentialKind.ENVIRONMENT, {"variable": name}, {"value": Secret(value)})


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    data = over_stdio(signs_in_as=SignsInAs.EITHER, values=[variable(), variable("LEVEL", "debug", secret=False)])
    return registering.register(actor, admin, data)


# --- what strangers did with the product ---------------------------------------------------------------------------------
@pytest.mark.django_db
def test_who_may_only_call_tools_runs_no_command_by_a_credential_of_their_own(server: Server) -> None:
    carl = person("carl", "view_server", "call_tool")
    with pytest.raises(ValidationError, match=r"“Register commands”.*Settings"):
        vault.create_own(Actor.of_user(carl), carl, server, of_variable("BASH_ENV", "/tmp/evil"))
    assert not CredentialUse.objects.exists()
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.actor_name, json.loads(event.body)["details"]["variable"]) == ("carl", "BASH_ENV")


@pytest.mark.django_db
def test_who_may_change_servers_and_manage_credentials_runs_none_by_attaching_one(server: Server) -> None:
    mary = person("mary", "view_server", "change_server", "view_credential", "manage_credential")
    with pytest.raises(ValidationError, match="makes a shell run code"):
        vault.create(Actor.of_user(mary), mary, "X", of_variable("BASH_ENV", "/tmp/evil"))
    harmless = vault.create(Actor.of_user(mary), mary, "X", of_variable("SCRIPT", "/tmp/evil"))
    with pytest.raises(ValidationError, match=r"cannot fill SCRIPT on .*\. Credentials can fill API_TOKEN"):
        vault.attach(Actor.of_user(mary), mary, server, harmless)


@pytest.mark.django_db
@pytest.mark.parametrize("renamed", ["BASH_ENV", "SCRIPT", "LEVEL"])
def test_who_may_manage_credentials_runs_none_by_replacing_one_under_another_name(
    renamed: str, server: Server, admin: Any, actor: Actor
) -> None:
    kate = person("kate", "view_credential", "manage_credential")
    made = vault.create(actor, admin, "Token", of_variable())
    vault.attach(actor, admin, server, made)
    with pytest.raises(ValidationError):
        vault.replace(Actor.of_user(kate), kate, made, of_variable(renamed, "/tmp/evil"))
    assert Credential.objects.get().details == {"variable": "API_TOKEN"}
    vault.replace(Actor.of_user(kate), kate, made, of_variable("API_TOKEN", "another"))
    found = launch_values(server).environment["API_TOKEN"]
    assert isinstance(found, Secret)
    assert found.reveal() == "another"


# --- what a registration leaves to credentials -----------------------------------------------------------------------------
@pytest.mark.django_db
def test_secret_variables_and_references_are_left_to_credentials_and_plain_ones_are_not(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [variable(), variable("LEVEL", "debug", secret=False), variable("REF", "${MCP_X}", secret=False)]
    server = registering.register(actor, admin, over_stdio(values=values))
    assert fillable(server) == fillable(over_stdio(values=values)) == {"API_TOKEN", "REF"}


@pytest.mark.django_db
def test_a_variable_left_open_is_filled_by_a_credential_and_missed_without_one(admin: Any, actor: Actor) -> None:
    left_open = variable("API_TOKEN", None)
    data = over_stdio(values=[type(left_open)(left_open.kind, "API_TOKEN", True, None, needed=True)])
    server = registering.register(actor, admin, data)
    with pytest.raises(NotLaunchable, match="API_TOKEN has no value") as missing:
        launch_values(server)
    assert missing.value.fault == "value_needed"
    vault.attach(actor, admin, server, vault.create(actor, admin, "Token", of_variable()))
    assert list(launch_values(server).environment) == ["API_TOKEN"]
    copy = registering.clone(actor, admin, server)
    assert fillable(copy) == {"API_TOKEN"}


@pytest.mark.django_db
def test_who_may_register_commands_leaves_a_variable_to_a_credential_by_attaching_it(
    server: Server, admin: Any, actor: Actor
) -> None:
    vault.attach(actor, admin, server, vault.create(actor, admin, "Token", of_variable("SECOND_TOKEN")))
    assert fillable(server) == {"API_TOKEN", "SECOND_TOKEN"}
    with pytest.raises(ValidationError, match="cannot fill LEVEL"):
        vault.attach(actor, admin, server, vault.create(actor, admin, "Level", of_variable("LEVEL")))
    assert AuditEvent.objects.filter(action=AuditAction.SERVER_CHANGE, subject=server.name).count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["BASH_FUNC_ls%%", "A-B", "", "1A"])
def test_a_name_that_is_none_is_not_passed_on_whatever_the_row_says(name: str, server: Server) -> None:
    assert variables.refusal(server, name)


# --- values of credentials in the command line -----------------------------------------------------------------------------
FINE = {
    "option": (["--token", "${X}"], "ghp_0123-abc.~+/=:@%,"),
    "option=": (["--api-key=${X}"], "abc"),
    "header": (["--header", "Authorization: Bearer ${X}"], "abc"),
    "whole header": (["--header", "Authorization:${X}"], "Bearer abc"),
    "escaped": (["-c", "$${X}"], "; id"),
}
REFUSED = {
    "a script": (["-c", "${X}"], "id"),
    "in a script": (["-c", "serve --token ${X}"], "abc"),
    "an assignment in a script": (["-c", "TOKEN=${X}"], "abc"),
    "a label in a script": (["-e", "Authorization:${X}"], "qx/id/"),
    "a program": (["${X}"], "/tmp/evil"),
    "a module": (["--require", "${X}"], "/tmp/evil.js"),
    "an option of its own": (["--token", "${X}"], "--eval=x"),
    "a short option": (["-p", "${X}"], "abc"),
    "more words": (["--token", "${X}"], "a b"),
    "more words in a header": (["--header", "Authorization:${X}"], "a b c"),
    "shell": (["--token=${X}"], "$(id)"),
    "two lines": (["--token=${X}"], "a\nb"),
    "text behind": (["--token=${X}/../x"], "abc"),
    "nothing": (["--token=${X}"], ""),
}


@pytest.mark.parametrize("shape", FINE)
def test_the_value_of_a_credential_is_where_a_secret_is_expected(shape: str) -> None:
    arguments, value = FINE[shape]
    assert command_refusal(arguments, "", {"X": Secret(value)}) == ""


@pytest.mark.parametrize("shape", REFUSED)
def test_the_value_of_a_credential_becomes_no_part_of_the_command(shape: str) -> None:
    arguments, value = REFUSED[shape]
    words = command_refusal(arguments, "", {"X": Secret(value)})
    assert words
    assert "Settings" in words or "Replace the value" in words
    assert not value or value == "abc" or value not in words


def test_the_value_of_a_credential_is_no_working_directory() -> None:
    assert "working directory" in command_refusal([], "${X}/in", {"X": Secret("/tmp")})


@pytest.mark.django_db
def test_a_command_line_that_takes_a_credential_as_code_is_not_run(admin: Any, actor: Actor) -> None:
    values = [variable("X")]
    data = over_stdio(command="sh", arguments=["-c", "serve ${X}"], signs_in_as=SignsInAs.EITHER, values=values)
    server = registering.register(actor, admin, data)
    assert launch_values(server).reached.arguments[1].startswith("serve ")
    carl = person("carl", "view_server", "call_tool")
    vault.create_own(Actor.of_user(carl), carl, server, of_variable("X", "; id"))
    with pytest.raises(NotLaunchable, match="Argument 2 refers to X") as refused:
        launch_values(server, server.identities.get(user=carl))
    assert refused.value.fault == "variable_refused"


@pytest.mark.django_db
def test_a_variable_that_only_a_credential_fills_is_no_variable_of_the_worker_without_one(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOKEN", "value-of-the-worker-1")
    data = over_stdio(
        arguments=["--token", "${MCP_TOKEN}"], signs_in_as=SignsInAs.EITHER, values=[variable("MCP_TOKEN")]
    )
    server = registering.register(actor, admin, data)
    own = server.identities.create(user=person("carl", "view_server", "call_tool"), kind="personal", name="carl")
    with pytest.raises(NotLaunchable, match="MCP_TOKEN, which has no value for this identity") as missing:
        launch_values(server, own)
    assert missing.value.fault == "value_needed"
