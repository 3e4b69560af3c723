"""Arguments of MCP tools: providers accept every declared schema, and the server gets its own names."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.interceptors import MCPToolCallRequest
from mcp.types import CallToolResult, TextContent, Tool

from agent.mcp.adapter import langchain_tool
from agent.mcp.calls import McpCaller
from agent.mcp.schemas import tool_arguments
from agent.thread_storage import ThreadStorage

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("given_schema", "accepted"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "null", "properties": None}, {"type": "object", "properties": {}}),
        (
            {
                "type": "object",
                "properties": {"id": TEXT, "name": TEXT},
                "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
            },
            {"type": "object", "properties": {"id": TEXT, "name": TEXT}},
        ),
        (
            {
                "oneOf": [
                    {"$ref": "#/$defs/File"},
                    {
                        "properties": {"kind": {"const": "url"}, "url": TEXT},
                        "required": ["kind", "url"],
                    },
                ],
                "$defs": {
                    "File": {
                        "properties": {"kind": {"const": "file"}, "path": TEXT},
                        "required": ["kind", "path"],
                    }
                },
            },
            {
                "type": "object",
                "properties": {
                    "kind": {"anyOf": [{"const": "file"}, {"const": "url"}]},
                    "path": TEXT,
                    "url": TEXT,
                },
                "required": ["kind"],
            },
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"b": NUMBER}, "required": ["b"]},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": NUMBER}, "required": ["a", "b"]},
        ),
        (
            {
                "properties": {
                    "a": {"type": ["array", "null"]},
                    "b": {"type": "array", "items": [TEXT]},
                }
            },
            {
                "type": "object",
                "properties": {
                    "a": {"type": ["array", "null"], "items": {}},
                    "b": {"type": "array", "items": {"anyOf": [TEXT]}},
                },
            },
        ),
        (
            {"properties": {"a": {"default": {"type": "array"}, "type": "object"}}, "not": {}},
            {
                "type": "object",
                "properties": {"a": {"default": {"type": "array"}, "type": "object"}},
            },
        ),
    ],
)
def test_schemas_are_accepted_by_providers(
    given_schema: dict[str, Any], accepted: dict[str, Any]
) -> None:
    made = dict(tool_arguments(given_schema).schema)
    made.pop("$defs", None)
    assert made == accepted


@UNTIMED
@given(st.lists(st.text(max_size=80), unique=True, max_size=12))
def test_names_of_arguments_are_accepted_and_lead_back(names: list[str]) -> None:
    schema = {"properties": dict.fromkeys(names, TEXT), "required": names}
    arguments = tool_arguments(schema)
    seen = list(arguments.schema["properties"])
    assert len(seen) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in seen)
    assert sorted(arguments.schema.get("required", [])) == sorted(seen)
    assert sorted(arguments.for_server(dict.fromkeys(seen))) == sorted(names)


async def test_a_server_gets_its_own_names(tmp_path: Path) -> None:
    calls: list[MCPToolCallRequest] = []

    async def call(request: MCPToolCallRequest, _: McpCaller) -> CallToolResult:
        calls.append(request)
        return CallToolResult(content=[TextContent(type="text", text="found")])

    schema = {
        "type": "object",
        "properties": {"$filter": TEXT, "top": NUMBER},
        "required": ["$filter"],
    }
    declared = Tool(name="list", description="List mails.", inputSchema=schema)
    tool = langchain_tool("mail", declared, call, (), ThreadStorage(tmp_path))
    function = convert_to_openai_tool(tool)["function"]
    assert function["parameters"]["properties"] == {"_filter": TEXT, "top": NUMBER}
    args = {"_filter": "unread", "top": 3}
    await tool.ainvoke({"type": "tool_call", "name": tool.name, "id": "1", "args": args})
    assert [request.args for request in calls] == [{"$filter": "unread", "top": 3}]


@pytest.mark.parametrize(
    ("schema", "called", "sent"),
    [
        ({"a": TEXT}, {"a": None}, {}),
        ({"a": {"type": ["string", "null"]}}, {"a": None}, {"a": None}),
        ({"a": {"anyOf": [TEXT, {"type": "null"}]}}, {"a": None}, {"a": None}),
        ({"a": {"anyOf": [TEXT, NUMBER]}}, {"a": None}, {}),
        ({"a": {"enum": ["x", None]}}, {"a": None}, {"a": None}),
        ({"a": {"enum": ["x"]}}, {"a": None}, {}),
        ({"a": {"type": "string", "nullable": True}}, {"a": None}, {"a": None}),
        ({"a": {}}, {"a": None}, {"a": None}),
        ({"a": {"$ref": "#/$defs/t"}}, {"a": None}, {}),
        ({"need": TEXT}, {"need": None}, {"need": None}),
        ({"a": TEXT}, {"other": None}, {"other": None}),
        ({"a": TEXT}, {"a": "null"}, {"a": "null"}),
        (
            {"f": {"type": "object", "properties": {"x": TEXT, "y": NUMBER}, "required": ["y"]}},
            {"f": {"x": None, "y": None}},
            {"f": {"y": None}},
        ),
        (
            {"l": {"type": "array", "items": {"type": "object", "properties": {"x": TEXT}}}},
            {"l": [{"x": None}, {"x": "1"}]},
            {"l": [{}, {"x": "1"}]},
        ),
    ],
)
def test_null_is_sent_only_where_the_server_takes_it(
    schema: dict[str, Any], called: dict[str, Any], sent: dict[str, Any]
) -> None:
    whole = {"properties": schema, "required": ["need"], "$defs": {"t": TEXT}}
    assert tool_arguments(whole).for_server(called) == sent
