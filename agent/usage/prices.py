"""Computes the cost of a call from the model's entry, or else from the included list prices (`genai-prices`)."""

from functools import cache
from typing import Any

from agent.config import ModelConfig
from agent.importer import import_object
from store.usage import UsageRow

NANO_PER_MILLION = 1_000
"""One US dollar per million tokens, in billionths of a dollar per token."""

_PROVIDERS = {
    "langchain_anthropic": "anthropic",
    "langchain_google_genai": "google",
    "langchain_openai": "openai",
}
"""The providers whose servers these packages call unless the entry has another address."""

_ADDRESS_KEYS = ("base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint")


def load_prices(entry: ModelConfig) -> None:
    """Import the table if a model needs it. Blocking: takes 0.05 s of CPU if httpx2 and pydantic are loaded."""
    if entry.price is None and _provider(entry):
        _table()


def has_price(entry: ModelConfig) -> bool:
    """Return whether the price of a model is known. Blocking, like `load_prices`."""
    row = UsageRow(day="", run_id="", kind="", model=entry.name, agent="", input_tokens=1)
    return cost_nano_usd(entry, row) is not None


def cost_nano_usd(entry: ModelConfig, row: UsageRow) -> int | None:
    """Return the cost of a call in billionths of a US dollar; None = the price is unknown.

    Takes 0.1 ms with the table. The table applies only to the provider's own address, because other servers have other
    prices.
    """
    price = entry.price
    if price is not None:
        cached = price.input if price.cached_input is None else price.cached_input
        cost = (
            (row.input_tokens - row.cached_tokens) * price.input
            + row.cached_tokens * cached
            + row.output_tokens * price.output
        )
        return round(cost * NANO_PER_MILLION)
    provider = _provider(entry)
    if not provider:
        return None
    calculate, usage = _table()
    counts = {
        "input_tokens": row.input_tokens,
        "cache_read_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
    }
    try:
        return int(calculate(usage(**counts), entry.model, **provider).total_price * 1_000_000_000)
    except LookupError:
        return None


def _provider(entry: ModelConfig) -> dict[str, str]:
    """Return the arguments that identify a model's provider; {} = unknown.

    >>> _provider(ModelConfig(name="gpt", use="langchain_openai:ChatOpenAI", model="gpt-5"))
    {'provider_id': 'openai'}
    """
    given = entry.extra_keys()
    address = next((given[key] for key in _ADDRESS_KEYS if given.get(key)), None)
    if address is not None:
        return {"provider_api_url": str(address)}
    package = entry.use.partition(":")[0].partition(".")[0]
    return {"provider_id": _PROVIDERS[package]} if package in _PROVIDERS else {}


@cache
def _table() -> tuple[Any, Any]:
    return import_object("genai_prices:calc_price"), import_object("genai_prices:Usage")
