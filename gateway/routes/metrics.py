"""GET /metrics: numbers for Prometheus."""

from fastapi import APIRouter, HTTPException
from fastapi.responses import PlainTextResponse

from gateway.deps import Parts
from gateway.exposition import CONTENT_TYPE
from gateway.metrics import exposed

router = APIRouter()


class MetricsPage(PlainTextResponse):
    """Prometheus' text format."""

    media_type = CONTENT_TYPE


@router.get(
    "/metrics",
    response_class=MetricsPage,
    responses={404: {"description": "gateway.metrics is off"}},
)
async def metrics(parts: Parts) -> MetricsPage:
    """Tell how things are in numbers. Needs the token, unless gateway.metrics is open."""
    if parts.config.gateway.metrics == "off":
        raise HTTPException(404, "The metrics are off: see gateway.metrics.")
    return MetricsPage(await exposed(parts))
