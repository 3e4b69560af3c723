"""Checks configured models with one short request each."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import anyio
import httpx
from langchain_core.messages import HumanMessage

from agent.config import DEMO_MODEL_CLASS, AgentConfig, ModelConfig
from agent.errors import AgentError
from agent.models.auxiliary import auxiliary_run_config
from agent.models.factory import create_chat_model
from agent.models.failures import FailureReason, ModelFailure, classify_error
from agent.models.http_client import ModelHttpClient
from agent.usage.recorder import UsageRecorder
from bots.common.diagnosis import CheckResult, Severity, problem

QUESTION = "Answer with the single word: ok"
TIMEOUT_S = 45.0
"""Deadline for a request, seconds. Local servers (Ollama) may have to load the model first."""

LIST_TIMEOUT_S = 10.0
"""Deadline for the list of a server's models, seconds."""

MAX_SENTENCE_CHARS = 300
"""How much of the provider's own message is shown, characters."""

MODEL_ADDRESSES = frozenset({"base_url", "openai_api_base", "anthropic_api_url"})
"""Keys of a model's entry that hold its server's address."""

_FIXES: Mapping[FailureReason | Literal["address"], str] = {
    "auth": "renew its api_key; the key needs access to this model",
    "quota": "add credit to your account with the provider",
    "rate_limit": "wait, or ask the provider for a higher limit",
    "server": "the provider has a server problem; try again later",
    "timeout": "check base_url and the network; if the model is still loading, try again",
    "connection": "check base_url, the network and the proxy (HTTPS_PROXY)",
    "context": "use a model with a larger context window",
    "address": "check base_url: most servers want /v1 at its end; if it is right, check `model`",
    "request": "check `model` (the provider's model name) and the other keys of the entry",
    "circuit_open": "try again in a minute",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The answer to a test call. `input_tokens`, `output_tokens`: as the server reported them; 0 = it did not."""

    text: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0


async def check_models(config: AgentConfig) -> list[CheckResult]:
    """Check all configured models concurrently."""
    found: dict[str, CheckResult] = {}

    async def ask(entry: ModelConfig) -> None:
        found[entry.name] = await check_model(config, entry)

    async with anyio.create_task_group() as tasks:
        for entry in config.chat_models:
            tasks.start_soon(ask, entry)
    return [found[entry.name] for entry in config.chat_models]


async def check_model(config: AgentConfig, entry: ModelConfig) -> CheckResult:
    """Check one model. Never raises."""
    if entry.use == DEMO_MODEL_CLASS:
        return CheckResult(
            subject=entry.name,
            text="the built-in demo answers with scripted text",
            severity=Severity.NOTE,
            fix="`parley init` sets up a real model",
        )
    given = entry.model_extra or {}
    for key in sorted(MODEL_ADDRESSES & given.keys()):
        for text in find_address_problem(key, given[key]):
            return problem(entry.name, text, f"correct {key}")
    answer = await call_model(config, entry)
    if isinstance(answer, CheckResult):
        return answer
    return CheckResult(subject=entry.name, text=f"{entry.model} answered in {answer.seconds:.1f} s")


async def call_model(
    config: AgentConfig, entry: ModelConfig, usage: UsageRecorder | None = None
) -> ModelAnswer | CheckResult:
    """Send one short request to a model. Return the problem if there is no answer. Never raises."""
    connections = ModelHttpClient()
    try:
        return await _ask_model(config, entry, connections, usage)
    except TimeoutError:
        return problem(entry.name, f"no answer within {TIMEOUT_S:.0f} s", _FIXES["timeout"])
    except Exception as error:  # noqa: BLE001 - every provider's package raises its own types
        return _failure_result(entry, error)
    finally:
        await connections.aclose()


def find_address_problem(path: str, address: object) -> Iterator[str]:
    """Yield the problems with a server's address."""
    # "$" starts an unset variable.
    if address and not str(address).startswith(("http://", "https://", "$")):
        yield f"{path}: must start with http:// or https://"


def _failure_result(entry: ModelConfig, error: Exception) -> CheckResult:
    if isinstance(error, AgentError):
        return problem(entry.name, error.user_message, "correct this entry of `models`")
    failure = classify_error(error)
    if failure is None:
        return problem(entry.name, f"failed ({type(error).__name__})", _FIXES["request"])
    sentence = " ".join(provider_sentence(error).split())[:MAX_SENTENCE_CHARS]
    return problem(entry.name, f"{failure.reason} ({failure.detail}): {sentence}", fix_of(failure))


def fix_of(failure: ModelFailure) -> str:
    """Return what to do about a failed request."""
    return _FIXES["address" if failure.status == HTTPStatus.NOT_FOUND else failure.reason]


def provider_sentence(error: Exception) -> str:
    """Return the sentence of a provider's error, without the JSON around it; else the error's text.

    >>> error = Exception("Error code: 401 - {...}")
    >>> error.body = {"message": "Incorrect API key provided."}
    >>> provider_sentence(error), provider_sentence(Exception("no route"))
    ('Incorrect API key provided.', 'no route')
    """
    body = getattr(error, "body", None)
    for _ in range(2):  # Anthropic's body has a section `error`.
        if isinstance(body, Mapping):
            if isinstance(sentence := body.get("message"), str) and sentence:
                return sentence
            body = body.get("error")
    return str(body) if isinstance(body, str) and body else str(error)


async def list_models(base_url: str, headers: Mapping[str, str]) -> list[str]:
    """Return the names of a server's models, newest first. Empty if it does not list them in time."""
    try:
        async with httpx.AsyncClient(timeout=LIST_TIMEOUT_S) as client:
            answer = await client.get(f"{base_url.rstrip('/')}/models", headers=headers)
            rows = answer.raise_for_status().json()["data"]
            dated = [
                (str(row.get("created") or row.get("created_at") or ""), row["id"]) for row in rows
            ]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, KeyError, AttributeError):
        return []  # The check of the chosen model explains why.
    return [str(name) for _, name in sorted(dated, key=lambda one: one[0], reverse=True)]


async def _ask_model(
    config: AgentConfig,
    entry: ModelConfig,
    connections: ModelHttpClient,
    usage: UsageRecorder | None,
) -> ModelAnswer:
    model = await anyio.to_thread.run_sync(
        lambda: create_chat_model(config, entry.name, http_client=connections, usage=usage)
    )
    began = time.monotonic()
    with anyio.fail_after(TIMEOUT_S):
        message = await model.ainvoke([HumanMessage(QUESTION)], auxiliary_run_config("doctor"))
    tokens = message.usage_metadata
    return ModelAnswer(
        text=message.text,
        seconds=time.monotonic() - began,
        input_tokens=tokens["input_tokens"] if tokens else 0,
        output_tokens=tokens["output_tokens"] if tokens else 0,
    )
