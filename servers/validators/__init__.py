"""Validates the parts of a registration. Pure functions: each raises ValidationError with words for people."""

from servers.validators.addresses import (
    is_encrypted,
    is_loopback,
    is_secret_parameter,
    masked_url,
    origin,
    split_url,
    url_rule,
    validate_url,
    validate_websocket_url,
)
from servers.validators.characters import MAX_VALUE_LENGTH
from servers.validators.commands import (
    MAX_ARGUMENTS,
    split_command_line,
    validate_arguments,
    validate_command,
    validate_working_directory,
)
from servers.validators.execution import effect_on_execution
from servers.validators.launchers import asks_before_installing, launcher
from servers.validators.limits import LIMITS, validate_limit, validate_limits
from servers.validators.naming import (
    RESERVED_SLUGS,
    TIMES,
    validate_seconds,
    validate_slug,
    validate_tags,
    validate_worker_label,
)
from servers.validators.reach import (
    MAX_HOSTS,
    MAX_PATHS,
    validate_host,
    validate_hosts,
    validate_network,
    validate_path,
    validate_paths,
)
from servers.validators.references import is_reference, references, without_references
from servers.validators.roots import MAX_ROOTS, Root, root_uri, validate_root_name, validate_root_uri, validate_roots
from servers.validators.secrets import holds_secret, looks_like_token, secret_arguments
from servers.validators.values import (
    SECRET_NAME,
    is_set_anyway,
    looks_secret,
    validate_header_name,
    validate_header_value,
    validate_variable_name,
    validate_variable_value,
)

__all__ = [
    "LIMITS",
    "MAX_ARGUMENTS",
    "MAX_HOSTS",
    "MAX_PATHS",
    "MAX_ROOTS",
    "MAX_VALUE_LENGTH",
    "RESERVED_SLUGS",
    "SECRET_NAME",
    "TIMES",
    "Root",
    "asks_before_installing",
    "effect_on_execution",
    "holds_secret",
    "is_encrypted",
    "is_loopback",
    "is_reference",
    "is_secret_parameter",
    "is_set_anyway",
    "launcher",
    "looks_like_token",
    "looks_secret",
    "masked_url",
    "origin",
    "references",
    "root_uri",
    "secret_arguments",
    "split_command_line",
    "split_url",
    "url_rule",
    "validate_arguments",
    "validate_command",
    "validate_header_name",
    "validate_header_value",
    "validate_host",
    "validate_hosts",
    "validate_limit",
    "validate_limits",
    "validate_network",
    "validate_path",
    "validate_paths",
    "validate_root_name",
    "validate_root_uri",
    "validate_roots",
    "validate_seconds",
    "validate_slug",
    "validate_tags",
    "validate_url",
    "validate_variable_name",
    "validate_variable_value",
    "validate_websocket_url",
    "validate_worker_label",
    "validate_working_directory",
    "without_references",
]
