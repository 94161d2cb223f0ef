"""Tools are judged by what makes them hard to use for a model, and counted with a real vocabulary."""

import gzip
import hashlib
import inspect
import json
from typing import Any

import pytest
from tiktoken_ext import openai_public

from servers.definitions import model_tokens
from servers.definitions.advice import MANY_TOKENS, advice
from sessions.agents.catalog import search


def problems(*tools: dict[str, Any], tokens: int = 10, prefix: str = "") -> list[list[str]]:
    return [[one.problem for one in found] for found in advice(tools, [tokens] * len(tools), prefix)]


def tool(
    name: str = "get_order", description: str = "Reads an order. Use it when its number is known.", **more: Any
) -> Any:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}} | more


def test_a_tool_that_says_everything_gets_no_advice() -> None:
    described = {"id": {"type": "string", "description": "Number of the order."}, "kind": {"$ref": "#/$defs/kind"}}
    assert problems(tool(inputSchema={"type": "object", "properties": described})) == [[]]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("", "No description"),
        (None, "No description"),
        ("Gets orders.", "A very short description"),
        ("查询天气", "A very short description"),
        ("Returns the order with this number from the shop.", "Says what it does, but not when to use it"),
        ("查询指定城市的实时天气信息。当用户询问天气时使用。", None),
        ("Ändert eine Bestellung. Immer dann verwenden, wenn sich die Adresse ändert.", None),
    ],
)
def test_a_description_says_what_and_when(description: Any, expected: str | None) -> None:
    assert problems(tool(description=description)) == [[expected] if expected else []]


def test_tools_of_our_own_need_no_advice() -> None:
    assert problems(*(json.loads(one) for one in search.DEFINITIONS)) == [[], []]


def test_parameters_are_described_also_in_objects_and_lists() -> None:
    schema = {
        "type": "object",
        "properties": {
            "bare": {"type": "string"},
            "told": {"description": "Told.", "type": "object", "properties": {"inner": {"type": "string"}}},
            "maybe": {"anyOf": [{"type": "string", "description": "Told."}, {"type": "null"}]},
            "all": {"allOf": [{"$ref": "#/$defs/kind"}]},
            "list": {"description": "Told.", "items": {"type": "object", "properties": {"one": {"description": " "}}}},
        },
    }
    assert problems(tool(inputSchema=schema)) == [["No description for the parameters bare, told.inner, list.one"]]
    many = {"type": "object", "properties": {f"p{number}": {} for number in range(10)}}
    assert problems(tool(inputSchema=many))[0][0].endswith("p6, p7 and 2 more")


def test_names_fit_models_with_the_clients_prefix_and_differ_by_more_than_case() -> None:
    assert problems(tool("a.b")) == [["Characters that models do not accept"]]
    long = "n" * 55
    assert problems(tool(long), prefix="mcp__shop__") == [[f"66 characters in a client: mcp__shop__{long}"]]
    twins = problems(
        tool("getOrder", "Use it if new."), tool("get_order", "Use it if old."), tool("other", "Use it if .")
    )
    assert twins == [["Almost the same name as get_order"], ["Almost the same name as getOrder"], []]
    other = problems(tool("查询_api", "Use it to ask."), tool("删除_api", "Use it to delete."))
    assert not any("Almost" in problem for found in other for problem in found)


def test_equal_descriptions_and_large_definitions_are_named() -> None:
    assert problems(tool("one"), tool("two")) == [["Another tool has the same description"]] * 2
    assert problems(tool(), tokens=MANY_TOKENS + 1) == [["1,001 tokens in every conversation"]]


@pytest.mark.parametrize(
    "odd", [{}, {"name": 7, "description": [], "inputSchema": []}, {"inputSchema": {"properties": 1}}]
)
def test_what_no_server_should_send_is_judged_all_the_same(odd: dict[str, Any]) -> None:
    assert "No description" in problems(odd)[0]


def test_the_vocabulary_is_the_one_that_tiktoken_expects() -> None:
    digest = hashlib.sha256(gzip.decompress(model_tokens.FILE.read_bytes())).hexdigest()
    source = inspect.getsource(openai_public.cl100k_base)
    assert digest in source
    assert model_tokens._WORDS in source


def test_tokens_are_counted() -> None:
    assert [model_tokens.count(text) for text in ("", "tool", '{"name":"get_order"}', "Übergrößenträger")] == [
        0,
        1,
        6,
        8,
    ]
