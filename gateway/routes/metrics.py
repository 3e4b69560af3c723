"""GET /metrics: metrics for Prometheus."""

import importlib

from anyio import to_thread
from fastapi import APIRouter, HTTPException
from fastapi.responses import PlainTextResponse

from gateway.dependencies import ServicesDep

router = APIRouter()

METRICS_MODULE = "gateway.metrics"
"""Imported at the first scrape, because importing prometheus_client would slow down startup by 30 ms."""


class MetricsResponse(PlainTextResponse):
    """Prometheus' text format."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    response_class=MetricsResponse,
    responses={404: {"description": "gateway.metrics is off"}},
)
async def get_metrics(services: ServicesDep) -> MetricsResponse:
    """Return metrics for Prometheus. Requires the token unless gateway.metrics is open."""
    if services.config.gateway.metrics == "off":
        raise HTTPException(404, "Metrics are off: see gateway.metrics.")
    module = await to_thread.run_sync(importlib.import_module, METRICS_MODULE)
    return MetricsResponse(await module.render_metrics(services))
