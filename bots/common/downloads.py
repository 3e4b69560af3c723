"""Streams a download with a size limit."""

from collections.abc import AsyncIterator, Callable

from bus.errors import DeliveryError, FileTooLarge


async def limit_size(
    chunks: AsyncIterator[bytes],
    max_bytes: int,
    *,
    errors: tuple[type[Exception], ...],
    convert: Callable[[Exception], DeliveryError],
) -> AsyncIterator[bytes]:
    """Yield the chunks as they arrive.

    Args:
        chunks: The chunks.
        max_bytes: Maximum number of bytes, checked while they arrive.
        errors: Exceptions of the HTTP library for a broken connection.
        convert: Converts such an exception to a DeliveryError. The cause is not chained, because it may contain the
            URL, which may contain a secret.

    Raises:
        DeliveryError: The file is too large, or the connection broke.
    """
    received = 0
    while True:
        try:
            chunk = await anext(chunks, None)
        except errors as error:
            raise convert(error) from None
        if chunk is None:
            return
        received += len(chunk)
        if received > max_bytes:
            raise FileTooLarge(max_bytes)
        yield chunk
