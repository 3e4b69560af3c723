"""Retries failed model calls, falls back to the next model, and reports a failure if none responds."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk
from langgraph.errors import GraphBubbleUp
from typing_extensions import override

from agent.config import AgentConfig, LlmRetryConfig
from agent.errors import AgentError
from agent.langgraph_internals import listening_model
from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.models.auxiliary import ModelSource
from agent.models.circuit_breakers import BreakerCall, CircuitBreakers
from agent.models.failures import FALLBACK_KEY, ModelFailure, classify_error, fallback_message
from agent.redaction import redact_error
from agent.state import ThreadState
from agent.uploads.images import limit_images, without_attachments
from agent.usage.limits import limit_texts
from store.usage import UsageLimit, UsageLimitReached

log = logging.getLogger(__name__)

LOGGED_CHARS = 400
"""Maximum length of a server's rejection message in the log, characters."""

SEARCHED_CHARS = 10_000  # characters of the message to search for secrets

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class _StreamedText(BaseCallbackHandler):
    """The text that a model streamed before it failed, and its message id."""

    run_inline = True  # otherwise each token would go through a worker thread

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.message_id: str | None = None

    @override
    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        """Do nothing. Without this method, LangChain formats the whole prompt as text for the callback."""

    @override
    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        **kwargs: Any,
    ) -> None:
        if chunk is not None and chunk.text:
            self._pieces.append(chunk.text)
            if isinstance(chunk, ChatGenerationChunk):
                self.message_id = chunk.message.id

    @property
    def text(self) -> str:
        return "".join(self._pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedCall:
    """A call whose attempts all failed."""

    failure: ModelFailure
    streamed: _StreamedText = field(default_factory=_StreamedText)


class LlmRetryMiddleware(AgentMiddleware[ThreadState, Any]):
    """Retries one model call, then tries the fallback models, then returns a failure message.

    Each retry is a new message with its own id. The text of a broken stream is not part of the thread, and clients
    replace it. If all attempts fail, the text of the last broken stream stays, followed by a failure message.
    If a server rejects a request with attachments, the request is repeated without them, so that one damaged picture
    does not end the turn. If a server accepts fewer pictures, only the newest are sent.
    If a request is too long, no fallback model is tried: SummarizationMiddleware repeats it with a shorter history.
    Errors that do not come from a model's server pass through, as do interrupts and cancellation.

    Args:
        config: The section.
        names: The entries of `models` to try: the run's own, then the fallbacks.
        models: Provides the fallback models.
        breakers: The circuit breakers.
        sleep: Waits this many seconds.
    """

    def __init__(
        self,
        config: LlmRetryConfig,
        *,
        names: Sequence[str],
        models: ModelSource,
        breakers: CircuitBreakers,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        super().__init__()
        self._config = config
        self._names = tuple(names)
        self._models = models
        self._breakers = breakers
        self._sleep = sleep
        self._picture_limits: dict[str, int] = {}

    @override
    async def awrap_model_call(self, request: Request, handler: ModelHandler) -> Response:
        first: _FailedCall | None = None
        streamed = _StreamedText()
        for name in self._names:
            asked = (
                request
                if first is None
                else await self._fallback_request(request, name, first.failure)
            )
            if asked is None:
                continue
            try:
                outcome = await self._call_model(name, asked, handler)
            except UsageLimitReached as error:
                return _limit_response(request, error.limit)
            if not isinstance(outcome, _FailedCall):
                return outcome
            streamed = outcome.streamed if outcome.streamed.text else streamed
            # Report the failure of the requested model, not of a fallback.
            first = first or outcome
            if outcome.failure.reason == "context":
                break  # SummarizationMiddleware shortens the conversation
        if first is None:
            raise RuntimeError("no model to call")
        return _failure_response(request, first.failure, streamed)

    async def _fallback_request(
        self, request: Request, name: str, failure: ModelFailure
    ) -> ModelRequest[Any] | None:
        """Return the request with another model; None if that model cannot be built."""
        try:
            model = await self._models(name)
        except AgentError as error:
            log.warning("Cannot fall back to model %s: %s", name, error)
            return None
        log.warning("Falling back to model %s from %s", name, self._names[0])
        request.runtime.stream_writer(
            {
                "type": "llm_fallback",
                "from": self._names[0],
                "to": name,
                "reason": failure.reason,
                "message": f"The model could not be reached ({failure.detail}); {name} answers instead.",
            }
        )
        return request.override(model=model)

    async def _call_model(
        self, name: str, request: Request, handler: ModelHandler
    ) -> Response | _FailedCall:
        with self._breakers.call(name) as trial:
            if not trial.allowed:
                log.warning("Circuit breaker is open for model %s", name)
                return _FailedCall(failure=ModelFailure(reason="circuit_open", kind="CircuitOpen"))
            request = _with_newest_pictures(request, self._picture_limits.get(name))
            outcome = await self._call_with_retries(name, request, handler, trial)
            for _ in range(2):  # first with the newest pictures, then without any
                fewer = self._with_fewer_attachments(name, request, outcome)
                if fewer is None:
                    return outcome
                log.warning("Model %s rejected a request with attachments: trying fewer", name)
                request = fewer
                outcome = await self._call_with_retries(name, request, handler, trial)
            return outcome

    def _with_fewer_attachments(
        self, name: str, request: Request, outcome: Response | _FailedCall
    ) -> Request | None:
        """Return the request with fewer attachments; None if it has none or the server did not reject it.

        If the server states a limit on pictures, later requests respect it.
        """
        if not isinstance(outcome, _FailedCall) or outcome.failure.reason != "request":
            return None
        limit = outcome.failure.picture_limit
        if limit is not None:
            limited = _with_newest_pictures(request, limit)
            if limited is not request:
                self._picture_limits[name] = limit
                return limited
        bare = without_attachments(request.messages)
        return None if bare is request.messages else request.override(messages=bare)

    async def _call_with_retries(
        self, name: str, request: Request, handler: ModelHandler, trial: BreakerCall
    ) -> Response | _FailedCall:
        attempt, broken = 0, _StreamedText()
        while True:
            attempt += 1
            streamed = _StreamedText()
            try:
                response = await handler(_with_listener(request, streamed))
            except GraphBubbleUp:
                raise
            except Exception as error:
                failure = classify_error(error)
                if failure is None:
                    raise
                self._breakers.note_outcome(name, failure)
                self._log_failure(name, failure, error, attempt)
            else:
                trial.succeeded()
                self._breakers.note_outcome(name, None)
                return response
            broken = streamed if streamed.text else broken
            wait_s = self._retry_delay_s(attempt, failure)
            if wait_s is None:
                if failure.retryable:
                    trial.failed()
                else:
                    trial.succeeded()  # the server works: it answered, even if with a refusal
                return _FailedCall(failure=failure, streamed=broken)
            self._report_retry(request, failure, attempt=attempt, wait_s=wait_s)
            await self._sleep(wait_s)
            self._breakers.retries[name] += 1

    def _log_failure(
        self, name: str, failure: ModelFailure, error: Exception, attempt: int
    ) -> None:
        log.warning(
            "Model %s failed (%s: %s), attempt %d of %d",
            *(name, failure.kind, failure.detail, attempt, self._config.max_attempts),
        )
        if failure.reason == "request":
            # Operators need this log line to find out which tool or message the server rejects.
            said = redact_error(str(error)[:SEARCHED_CHARS])[:LOGGED_CHARS]
            log.debug("Model %s rejected the request: %s", name, said)

    def _retry_delay_s(self, attempt: int, failure: ModelFailure) -> float | None:
        """Return the delay before the next attempt; None = do not try again."""
        config = self._config
        if not failure.retryable or attempt >= config.max_attempts:
            return None
        if failure.retry_after_s is None:
            return float(min(config.first_wait_s * 2 ** (attempt - 1), config.max_wait_s))
        # Nobody waits this long: fail now.
        return failure.retry_after_s if failure.retry_after_s <= config.max_retry_after_s else None

    def _report_retry(
        self, request: Request, failure: ModelFailure, *, attempt: int, wait_s: float
    ) -> None:
        request.runtime.stream_writer(
            {
                "type": "llm_retry",
                "attempt": attempt,
                "max_attempts": self._config.max_attempts,
                "wait_ms": round(wait_s * 1000),
                "reason": failure.reason,
                "message": f"The model's server failed ({failure.detail}); I will try again in {wait_s:.1f} s.",
            }
        )


def _with_newest_pictures(request: Request, most: int | None) -> Request:
    """Return the request with only its newest pictures; the same object if it is within the limit."""
    messages = request.messages if most is None else limit_images(request.messages, most)
    return request if messages is request.messages else request.override(messages=messages)


def _with_listener(request: Request, streamed: _StreamedText) -> Request:
    """Return the request with a callback on a copy of its model, because runs share the original."""
    return request.override(model=listening_model(request.model, streamed))


def _limit_response(request: Request, limit: UsageLimit) -> Response:
    """Return the message that ends a turn when a limit leaves no room for another call."""
    words = localized_messages(request)
    texts = limit_texts(limit)
    text = words.usage_limit(limit.counter.scope).format(**texts)
    marks = {
        FALLBACK_KEY: True,
        "error_type": "UsageLimitReached",
        "error_reason": "usage_limit",
        "error_detail": f"{limit.counter.scope}, {texts['amount']} until {texts['resets']}",
    }
    return ModelResponse(result=[AIMessage(text, additional_kwargs=marks)])


def _failure_response(request: Request, failure: ModelFailure, streamed: _StreamedText) -> Response:
    message = fallback_message(
        failure, localized_messages(request), streamed=streamed.text, message_id=streamed.message_id
    )
    return ModelResponse(result=[message])


def fallback_order(config: AgentConfig, model_name: str) -> tuple[str, ...]:
    """Return the models to try: the given one, then the entries that follow it in `models`."""
    names = [entry.name for entry in config.chat_models]
    if model_name not in names or not config.llm_retry.fallback:
        return (model_name,)
    return tuple(names[names.index(model_name) :])
