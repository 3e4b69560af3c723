"""GET /metrics: numbers for Prometheus."""

from fastapi import APIRouter, HTTPException
from fastapi.responses import PlainTextResponse

from gateway.dependencies import ServicesDep
from gateway.exposition import CONTENT_TYPE
from gateway.metrics import render_metrics

router = APIRouter()


class MetricsResponse(PlainTextResponse):
    """Prometheus' text format."""

    media_type = CONTENT_TYPE


@router.get(
    "/metrics",
    response_class=MetricsResponse,
    responses={404: {"description": "gateway.metrics is off"}},
)
async def get_metrics(services: ServicesDep) -> MetricsResponse:
    """Tell how things are in numbers. Needs the token, unless gateway.metrics is open."""
    if services.config.gateway.metrics == "off":
        raise HTTPException(404, "The metrics are off: see gateway.metrics.")
    return MetricsResponse(await render_metrics(services))
