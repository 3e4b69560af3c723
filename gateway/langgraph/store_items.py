"""The key-value store of graphs over HTTP: items by namespace and key."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from langgraph.store.base import Item, ListNamespacesOp, MatchCondition, SearchItem
from starlette.responses import Response

from gateway.api_tokens import TOKEN_SCOPE
from gateway.dependencies import ServicesDep
from gateway.langgraph.request_models import ItemKey, ItemPut, ItemSearch, NamespaceSearch
from gateway.langgraph.response_models import NamespaceList, StoreItemList
from gateway.langgraph.route import WireRoute, json_response

router = APIRouter(tags=["store"], route_class=WireRoute)


@contextmanager
def _invalid_is_422() -> Iterator[None]:
    """Convert the store's errors about namespaces and filters to 422."""
    try:
        yield
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


@router.put("/store/items", status_code=204)
async def put_item(body: ItemPut, services: ServicesDep) -> None:
    """Store an item. Replaces an item with the same namespace and key."""
    with _invalid_is_422():
        await services.runs.items.aput(tuple(body.namespace), body.key, body.value, ttl=body.ttl)


@router.get("/store/items", response_model=None)
async def get_item(
    services: ServicesDep,
    key: Annotated[str, Query(min_length=1)],
    namespace: Annotated[str, Query(description="Labels, separated by dots")] = "",
    *,
    refresh_ttl: Annotated[bool | None, Query(description="Restart the time to live")] = None,
) -> Response:
    """Return an item, or null."""
    labels = tuple(label for label in namespace.split(".") if label)
    refresh = _permitted_refresh(asked=refresh_ttl)
    with _invalid_is_422():
        item = await services.runs.items.aget(labels, key, refresh_ttl=refresh)
    return json_response(_item_view(item) if item else None)


@router.delete("/store/items", status_code=204)
async def delete_item(body: ItemKey, services: ServicesDep) -> None:
    """Delete an item if it exists."""
    with _invalid_is_422():
        await services.runs.items.adelete(tuple(body.namespace), body.key)


@router.post("/store/items/search", response_model=StoreItemList)
async def search_items(body: ItemSearch, services: ServicesDep) -> Response:
    """List the items below a namespace, newest first."""
    refresh = _permitted_refresh(asked=body.refresh_ttl)
    with _invalid_is_422():
        found = await services.runs.items.asearch(
            tuple(body.namespace_prefix),
            query=body.query,
            filter=body.filter,
            limit=body.limit,
            offset=body.offset,
            refresh_ttl=refresh,
        )
    return json_response({"items": [_item_view(item) for item in found]})


@router.post("/store/namespaces", response_model=NamespaceList)
async def list_namespaces(body: NamespaceSearch, services: ServicesDep) -> Response:
    """List namespaces."""
    conditions = []
    if body.prefix:
        conditions.append(MatchCondition(match_type="prefix", path=tuple(body.prefix)))
    if body.suffix:
        conditions.append(MatchCondition(match_type="suffix", path=tuple(body.suffix)))
    [found] = await services.runs.items.abatch(
        [ListNamespacesOp(tuple(conditions), body.max_depth, body.limit, body.offset)]
    )
    return json_response({"namespaces": found})


def _permitted_refresh(*, asked: bool | None) -> bool | None:
    """Return whether reading restarts the time to live, which is a change. None = the default, which restarts it.

    Raises:
        HTTPException: 403 if the token may only read.
    """
    if TOKEN_SCOPE.get() != "read":
        return asked
    if asked:
        raise HTTPException(403, "A token with the scope `read` may not set refresh_ttl.")
    return False


def _item_view(item: Item) -> dict[str, Any]:
    view = {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }
    return view | {"score": item.score} if isinstance(item, SearchItem) else view
