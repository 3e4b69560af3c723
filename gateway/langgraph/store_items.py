"""The key-value store over HTTP: what graphs keep beside threads, by namespace and key."""

from typing import Any

from fastapi import APIRouter
from langgraph.store.base import InvalidNamespaceError, Item, MatchCondition, SearchItem
from langgraph.store.base import ListNamespacesOp as Listing
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.request_models import ItemKey, ItemPut, ItemSearch, NamespaceSearch
from gateway.langgraph.route import ApiError, WireRoute, json_response, read_body
from gateway.langgraph.services import services_of
from store.items import ItemStore

router = APIRouter(tags=["store"], route_class=WireRoute)


@router.put("/store/items", response_model=None)
async def put_item(request: Request) -> Response:
    """Keep an item; one with the same namespace and key is replaced."""
    body = await read_body(request, ItemPut)
    try:
        await _get_items(request).aput(tuple(body.namespace), body.key, body.value, ttl=body.ttl)
    except InvalidNamespaceError as error:
        raise ApiError(422, str(error)) from None
    return Response(status_code=204)


@router.get("/store/items", response_model=None)
async def get_item(request: Request) -> Response:
    """Return one item, or null. `namespace` is its labels with dots between."""
    query = request.query_params
    if not query.get("key"):
        raise ApiError(422, "key is required")
    namespace = tuple(label for label in query.get("namespace", "").split(".") if label)
    refresh = query.get("refresh_ttl")
    anew = None if refresh is None else refresh.lower() == "true"
    try:
        found = await _get_items(request).aget(namespace, query["key"], refresh_ttl=anew)
    except InvalidNamespaceError as error:
        raise ApiError(422, str(error)) from None
    return json_response(_item_view(found) if found else None)


@router.delete("/store/items", response_model=None)
async def delete_item(request: Request) -> Response:
    """Delete one item; nothing happens where there is none."""
    body = await read_body(request, ItemKey)
    try:
        await _get_items(request).adelete(tuple(body.namespace), body.key)
    except InvalidNamespaceError as error:
        raise ApiError(422, str(error)) from None
    return Response(status_code=204)


@router.post("/store/items/search", response_model=None)
async def search_items(request: Request) -> Response:
    """List the items below a namespace, newest first."""
    body = await read_body(request, ItemSearch)
    try:
        found = await _get_items(request).asearch(
            tuple(body.namespace_prefix),
            query=body.query,
            filter=body.filter,
            limit=body.limit,
            offset=body.offset,
            refresh_ttl=body.refresh_ttl,
        )
    except ValueError as error:
        raise ApiError(422, str(error)) from None
    return json_response({"items": [_item_view(item) for item in found]})


@router.post("/store/namespaces", response_model=None)
async def list_namespaces(request: Request) -> Response:
    """List the namespaces."""
    body = await read_body(request, NamespaceSearch)
    conditions = []
    if body.prefix:
        conditions.append(MatchCondition(match_type="prefix", path=tuple(body.prefix)))
    if body.suffix:
        conditions.append(MatchCondition(match_type="suffix", path=tuple(body.suffix)))
    [found] = await _get_items(request).abatch(
        [Listing(tuple(conditions), body.max_depth, body.limit, body.offset)]
    )
    return json_response({"namespaces": found})


def _get_items(request: Request) -> ItemStore:
    return services_of(request).runs.items


def _item_view(item: Item) -> dict[str, Any]:
    view = {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }
    return view | {"score": item.score} if isinstance(item, SearchItem) else view
