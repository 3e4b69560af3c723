"""RunSpans: the spans of a run by the GenAI semantic conventions: agents, model calls and tool calls."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from typing_extensions import override

from agent.trace_context import TRACEPARENT
from gateway.telemetry.message_content import messages_as_json, to_json
from gateway.telemetry.trace_ids import context_of, traceparent_of

SUBAGENT_PREFIX = "subagent:"
"""Prefix of the names of subagents' graphs (`agent.subagents.tool`)."""

LEAD_AGENT = "lead_agent"


class RunSpans(BaseCallbackHandler):
    """Records one run. Its spans belong to the trace of the task that starts it (`TRACEPARENT`).

    It runs inside the calls that it records, so that their requests carry their span.

    Args:
        tracer: Creates the spans.
        captures_content: Whether spans contain messages, arguments and results.
    """

    run_inline = True

    def __init__(self, tracer: Tracer, *, captures_content: bool) -> None:
        self._tracer = tracer
        self._captures_content = captures_content
        self._open: dict[UUID, tuple[Span, str]] = {}
        self._nearest: dict[UUID, Span] = {}

    @override
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name, given = str(kwargs.get("name") or ""), metadata or {}
        if parent_run_id is None:
            agent = str(given.get("langfuse_trace_name") or LEAD_AGENT)
        elif name.startswith(SUBAGENT_PREFIX):
            agent = name.removeprefix(SUBAGENT_PREFIX)
        else:
            if parent_run_id in self._nearest:
                self._nearest[run_id] = self._nearest[parent_run_id]
            return
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        if parent_run_id is None:
            attributes["parley.run.id"] = str(run_id)
        _add_thread(attributes, given)
        self._start(run_id, parent_run_id, f"invoke_agent {agent}", SpanKind.INTERNAL, attributes)

    @override
    def on_chain_end(
        self,
        outputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(run_id)
        if parent_run_id is None:
            self._close()

    @override
    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(run_id, error)
        if parent_run_id is None:
            self._close()

    @override
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = metadata or {}
        model = str(given.get("ls_model_name") or "")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": str(given.get("ls_provider") or "unknown"),
            "gen_ai.request.model": model,
        }
        for name, key in (("temperature", "ls_temperature"), ("max_tokens", "ls_max_tokens")):
            if isinstance(given.get(key), int | float):
                attributes[f"gen_ai.request.{name}"] = given[key]
        _add_thread(attributes, given)
        if self._captures_content and messages:
            attributes["gen_ai.input.messages"] = messages_as_json(messages[0])
        self._start(run_id, parent_run_id, f"chat {model}".strip(), SpanKind.CLIENT, attributes)

    @override
    def on_llm_end(
        self,
        response: LLMResult,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        if run_id in self._open:
            self._add_response(self._open[run_id][0], response)
        self._end(run_id)

    @override
    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(run_id, error)

    @override
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        name = str((serialized or {}).get("name") or kwargs.get("name") or "")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
        }
        if kwargs.get("tool_call_id"):
            attributes["gen_ai.tool.call.id"] = str(kwargs["tool_call_id"])
        if self._captures_content:
            attributes["gen_ai.tool.call.arguments"] = input_str
        title = f"execute_tool {name}".strip()
        self._start(run_id, parent_run_id, title, SpanKind.INTERNAL, attributes)

    @override
    def on_tool_end(
        self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        if self._captures_content and run_id in self._open:
            content = getattr(output, "content", output)
            self._open[run_id][0].set_attribute("gen_ai.tool.call.result", to_json(content))
        self._end(run_id)

    @override
    def on_tool_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(run_id, error)

    def _start(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
    ) -> None:
        outer = TRACEPARENT.get()
        parent = self._nearest.get(parent_run_id) if parent_run_id is not None else None
        context = context_of(outer) if parent is None else set_span_in_context(parent)
        span = self._tracer.start_span(name, context, kind, attributes)
        self._open[run_id] = (span, outer)
        self._nearest[run_id] = span
        TRACEPARENT.set(traceparent_of(span))

    def _end(self, run_id: UUID, error: BaseException | None = None) -> None:
        self._nearest.pop(run_id, None)
        span, outer = self._open.pop(run_id, (None, ""))
        if span is None:
            return
        # A question to a person ends a run with an exception.
        if error is not None and not isinstance(error, GraphBubbleUp):
            # Without the error's text, which may quote people's messages.
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        TRACEPARENT.set(outer)

    def _close(self) -> None:
        """End the spans that a canceled run left open."""
        for run_id in list(self._open):
            self._end(run_id)
        self._nearest.clear()

    def _add_response(self, span: Span, response: LLMResult) -> None:
        generation = response.generations[0][0] if response.generations else None
        if not isinstance(generation, ChatGeneration):
            return
        message = generation.message
        metadata = message.response_metadata
        if metadata.get("model_name"):
            span.set_attribute("gen_ai.response.model", str(metadata["model_name"]))
        reason = metadata.get("finish_reason") or metadata.get("stop_reason")
        if reason:
            span.set_attribute("gen_ai.response.finish_reasons", [str(reason)])
        if isinstance(message, AIMessage) and message.usage_metadata:
            usage = message.usage_metadata
            span.set_attribute("gen_ai.usage.input_tokens", usage["input_tokens"])
            span.set_attribute("gen_ai.usage.output_tokens", usage["output_tokens"])
        if self._captures_content:
            span.set_attribute("gen_ai.output.messages", messages_as_json([message]))


def _add_thread(attributes: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    if metadata.get("thread_id"):
        attributes["gen_ai.conversation.id"] = str(metadata["thread_id"])
