"""The real service with a collector: one trace per message, metrics and logs. A dead collector changes nothing."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.otlp_collector import OtlpCollector, ReceivedSpan, otlp_collector
from tests.journeys.service import Service, serving, with_model
from tests.people.platforms import PlatformServers

SECRET = "the words of a person"


def exporting(collector: OtlpCollector, **more: str) -> dict[str, str]:
    """Return the variables that export everything to a collector, quickly."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=otlp-key",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_BLRP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        **more,
    }


async def whole_trace(collector: OtlpCollector, deliveries: int = 1) -> list[ReceivedSpan]:
    """Wait until a message's root span and its deliveries have arrived. Return the trace's spans."""

    def spans() -> list[ReceivedSpan]:
        for root in collector.named("message"):
            trace = [one for one in collector.spans if one.trace_id == root.trace_id]
            if len([one for one in trace if one.name == "deliver"]) >= deliveries:
                return trace
        return []

    return await eventually(spans, bool)


def tree(spans: list[ReceivedSpan]) -> set[tuple[str, str]]:
    """Return (parent's name, name) of all spans. The parent's name is "" if the parent is not among them."""
    names = {span.span_id: span.name for span in spans}
    return {(names.get(span.parent_id, ""), span.name) for span in spans}


async def test_a_message_is_one_trace_from_intake_to_delivery(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        otlp_collector() as collector,
    ):
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(
            tmp_path, config, "telegram", environment=exporting(collector)
        ) as service:
            look = ToolCall("ls", {"path": "/mnt/user-data/workspace"}, id="call-1")
            model.reply(ModelReply(calls=(look,)), ModelReply(text="Nothing there."))
            user = next(one for one in platforms.users if one.channel == "telegram")
            await user.send(SECRET)
            await user.expect_messages("Nothing there.")
            spans = await whole_trace(collector)
            assert tree(spans) == {
                ("", "message"),
                ("message", "intake"),
                ("message", "queue"),
                ("message", "invoke_agent lead_agent"),
                ("invoke_agent lead_agent", "chat fake-1"),
                ("invoke_agent lead_agent", "execute_tool ls"),
                ("message", "deliver"),
            }
            by_name = {span.name: span.attributes for span in spans}
            chat = by_name["chat fake-1"]
            assert chat["gen_ai.operation.name"] == "chat"
            assert chat["gen_ai.provider.name"] == "openai"
            assert chat["gen_ai.request.model"] == "fake-1"
            assert chat["gen_ai.usage.input_tokens"] > 0
            assert chat["gen_ai.usage.output_tokens"] > 0
            assert by_name["execute_tool ls"]["gen_ai.tool.call.id"] == "call-1"
            assert by_name["message"]["parley.outcome"] == "done"
            assert by_name["message"]["parley.channel"] == "telegram"
            thread = by_name["message"]["gen_ai.conversation.id"]
            assert by_name["invoke_agent lead_agent"]["gen_ai.conversation.id"] == thread
            # The model's requests carry the spans of their calls.
            sent = {request.headers["traceparent"].split("-")[2] for request in model.requests[:2]}
            assert sent == {span.span_id for span in spans if span.name == "chat fake-1"}
            await check_metrics_and_logs(collector, service)
            assert {one["service.name"] for one in collector.resources} == {"parley"}
            assert all(one["x-api-key"] == "otlp-key" for one in collector.headers)
            assert SECRET.encode() not in collector.raw
            assert b"sk-test" not in collector.raw
        assert platforms.violations == []


async def check_metrics_and_logs(collector: OtlpCollector, service: Service) -> None:
    """The metrics equal /metrics, and the logs equal the console's."""

    def finished() -> float:
        _, points = collector.metrics.get("parley_runs", ("", []))
        return sum(value for labels, value in points if labels["status"] == "success")

    assert await eventually(finished, lambda count: count == 1.0) == 1.0
    async with service.client() as client:
        page = (await client.get("/metrics")).text
    types = dict(line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE"))
    known = {name.removesuffix("_total") for name in types}
    await eventually(lambda: set(collector.metrics), lambda names: names == known)
    assert collector.metrics["parley_run_duration_seconds"][0] == "histogram"
    assert collector.metrics["parley_runs"][0] == "sum"
    intake = await eventually(
        lambda: [one for one in collector.logs if "accepted" in one.body], bool
    )
    assert intake[0].severity == "INFO"
    assert intake[0].attributes["log.logger"] == "bus.inbound.pipeline"


async def test_a_message_that_a_kill_interrupted_is_still_one_trace(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        otlp_collector() as collector,
    ):
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(
            tmp_path, config, "telegram", environment=exporting(collector)
        ) as service:
            model.reply(ModelReply(text="never to be finished", hang_after=2))
            user = next(one for one in platforms.users if one.channel == "telegram")
            await user.send("hi")
            await eventually(lambda: collector.named("queue"), bool)
            await model.until(lambda m: len(m.requests) == 1)
            before = {span.trace_id for span in collector.named("queue")}
            await service.kill()
            await service.start()
            await user.expect_messages("You said: hi")
            spans = await whole_trace(collector)
            assert {span.trace_id for span in spans} == before
            root = next(span for span in spans if span.name == "message")
            assert root.attributes["parley.starts"] == 2
            assert ("message", "invoke_agent lead_agent") in tree(spans)
            assert len(collector.named("message")) == 1


async def test_runs_of_the_api_continue_the_traces_of_their_clients(tmp_path: Path) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    server = stdio_server("mcp_server", "stdio")
    (tmp_path / "extensions.json").write_text(json.dumps({"mcpServers": {"fake": server}}))
    async with FakeModelServer() as model, otlp_collector() as collector:
        captured = exporting(
            collector,
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true",
            PARLEY_EXTENSIONS_CONFIG_PATH=str(tmp_path / "extensions.json"),
        )
        async with serving(tmp_path, with_model(model.base_url), environment=captured) as service:
            call = ToolCall("fake_trace", {}, id="call-1")
            model.reply(ModelReply(calls=(call,)), ModelReply(text="Done."))
            async with service.client() as client:

                async def state() -> str:
                    return str((await client.get("/api/mcp/status")).json()["servers"])

                await eventually(state, lambda shown: "'connected'" in shown)
                body: Mapping[str, Any] = {
                    "assistant_id": "lead_agent",
                    "input": {"messages": [{"role": "user", "content": SECRET}]},
                }
                headers = {"traceparent": f"00-{trace_id}-{span_id}-01"}
                done = await client.post("/api/runs/wait", json=body, headers=headers, timeout=30)
                assert done.status_code == 200, done.text
            spans = await eventually(
                lambda: [one for one in collector.spans if one.trace_id == trace_id],
                lambda found: any(one.name.startswith("POST") for one in found),
            )
            assert tree(spans) == {
                ("", "POST /api/runs/wait"),
                ("POST /api/runs/wait", "invoke_agent lead_agent"),
                ("invoke_agent lead_agent", "chat fake-1"),
                ("invoke_agent lead_agent", "execute_tool fake_trace"),
            }
            root = next(span for span in spans if span.name == "POST /api/runs/wait")
            assert root.parent_id == span_id
            assert root.attributes["http.response.status_code"] == 200
            chats = [span for span in spans if span.name == "chat fake-1"]
            assert SECRET in chats[0].attributes["gen_ai.input.messages"]
            tool = next(span for span in spans if span.name == "execute_tool fake_trace")
            # The MCP server saw the span of the call in the request's `_meta`.
            assert tool.span_id in tool.attributes["gen_ai.tool.call.result"]
            probes = [span for span in collector.spans if "health" in span.name]
            assert probes == []


async def test_failed_spans_contain_the_reason_but_no_message_text(tmp_path: Path) -> None:
    async with FakeModelServer() as model, otlp_collector() as collector:
        config = with_model(model.base_url)
        async with serving(tmp_path, config, environment=exporting(collector)) as service:
            wrong = ToolCall("read_file", {"secret": SECRET}, id="call-1")
            model.reply(ModelReply(calls=(wrong,)), ModelReply(status=401), ModelReply(text="Hi."))
            async with service.client() as client:
                for limit in (100, 1):
                    body = {
                        "assistant_id": "lead_agent",
                        "input": {"messages": [{"role": "user", "content": SECRET}]},
                        "config": {"recursion_limit": limit},
                    }
                    await client.post("/api/runs/wait", json=body, timeout=30)
            await eventually(lambda: len(collector.named("POST /api/runs/wait")) == 2)
            failed = {
                (span.name, span.attributes["error.type"], span.is_error)
                for span in collector.spans
                if "error.type" in span.attributes
            }
            assert failed == {
                ("execute_tool read_file", "ValidationError", True),
                ("chat fake-1", "OpenAIAuthenticationError", True),
                ("invoke_agent lead_agent", "GraphRecursionError", True),
            }
            assert SECRET not in str(collector.spans)


@pytest.mark.parametrize("is_listening", [False, True], ids=["refuses", "never answers"])
async def test_a_dead_collector_loses_only_what_it_misses(
    tmp_path: Path, is_listening: bool
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        if is_listening:
            nobody.listen()
        dead = OtlpCollector(port=nobody.getsockname()[1])
        async with PlatformServers() as platforms, FakeModelServer() as model:
            config = {**with_model(model.base_url), "channels": platforms.channels}
            async with serving(
                tmp_path, config, "telegram", environment=exporting(dead)
            ) as service:
                user = next(one for one in platforms.users if one.channel == "telegram")
                for number in range(3):
                    await user.send(f"hi {number}")
                    answer = f"You said: hi {number}"
                    await eventually(lambda: answer in user.bot_messages())  # noqa: B023
                async with service.client() as client:
                    assert (await client.get("/health/ready")).status_code == 200
                assert await service.stop() == 0
            log = service.log.read_text()
            assert "Traceback" not in log
            assert "Transient error" not in log  # each export is retried several times
            assert platforms.violations == []
