"""A load balancer in front of a proof's nodes. Each connection goes to the next node that accepts it."""

import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream


class LoadBalancer:
    """Forwards connections. Use it as an async context manager.

    Args:
        port: Where it listens, on the loopback interface.
        nodes: Ports of the nodes.
    """

    def __init__(self, port: int, nodes: Sequence[int]) -> None:
        self._port = port
        self._nodes = nodes
        self._turns = itertools.count()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        await self._stack.enter_async_context(listener)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(listener.serve, self._forward)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _forward(self, client: SocketStream) -> None:
        async with client:
            node = await self._connect()
            if node is None:
                return
            async with node, anyio.create_task_group() as both:
                both.start_soon(_carry, client, node)
                await _carry(node, client)
                both.cancel_scope.cancel()

    async def _connect(self) -> SocketStream | None:
        first = next(self._turns)
        for offset in range(len(self._nodes)):
            port = self._nodes[(first + offset) % len(self._nodes)]
            try:
                return await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                continue
        return None


async def _carry(source: ByteReceiveStream, target: ByteSendStream) -> None:
    """Forward data until either side ends."""
    try:
        async for part in source:
            await target.send(part)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
