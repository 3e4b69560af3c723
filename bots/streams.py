"""The bytes of a file that is being fetched, within a bound."""

from collections.abc import AsyncIterator, Callable

from bus.errors import DeliveryError, FileTooLarge


async def bounded(
    chunks: AsyncIterator[bytes],
    max_bytes: int,
    *,
    breaks: tuple[type[Exception], ...],
    broken: Callable[[Exception], DeliveryError],
) -> AsyncIterator[bytes]:
    """Yield the pieces as they come.

    Args:
        chunks: The pieces.
        max_bytes: More than so many bytes are refused while they arrive.
        breaks: What the connection's library raises when it breaks.
        broken: What that means. The cause is not chained: it may hold the address, and that a secret.

    Raises:
        DeliveryError: There are more, or the connection broke.
    """
    received = 0
    while True:
        try:
            chunk = await anext(chunks, None)
        except breaks as error:
            raise broken(error) from None
        if chunk is None:
            return
        received += len(chunk)
        if received > max_bytes:
            raise too_large(max_bytes)
        yield chunk


def too_large(max_bytes: int) -> DeliveryError:
    """Return the refusal of a file above the bound.

    >>> str(too_large(50_000_000))
    'it is larger than 50 MB'
    """
    return FileTooLarge(max_bytes)
