"""Responses of httpx that were read."""

import httpx

_READ = httpx.ByteStream(b"")


def release_stream(response: httpx.Response) -> None:
    """Part a response that was read from its stream. They refer to each other.

    So both stayed, with the request and the connection's objects, until the oldest objects are looked at for garbage.
    """
    response.stream = _READ
