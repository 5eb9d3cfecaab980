"""Answer several requests that come in one message (a bundle); each answer is sent as soon as it is ready."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from fastapi import Response

from qinglan.errors import DataError
from qinglan.http.request_bundles import MAX_REQUESTS, FrameDecoder, FrameHeader, encode_frame

PostHandler = Callable[[bytes, Mapping[str, str]], Awaitable[Response]]


def read_bundle(content: bytes, posts: Mapping[str, PostHandler]) -> list[tuple[FrameHeader, bytes]]:
    """Read the requests of a bundle. Raises a DataError if one is broken or incomplete, or has an unknown path."""
    decoder = FrameDecoder()
    requests = list(decoder.feed(content))
    if decoder.unfinished or any(head.subject not in posts for head, _ in requests):
        raise DataError(f"bundle: whole requests to {', '.join(posts)} belong here, and nothing after them.")
    if len(requests) > MAX_REQUESTS:
        raise DataError(f"bundle: {len(requests):,} requests; {MAX_REQUESTS} belong into one message.")
    return requests


async def answer_bundle(
    requests: Sequence[tuple[FrameHeader, bytes]], posts: Mapping[str, PostHandler]
) -> AsyncIterator[bytes]:
    """Yield the answers as frames; answers that are ready at the same time are joined to one piece."""
    ready: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(head: FrameHeader, body: bytes) -> None:
        try:
            response = await posts[head.subject](body, head.headers)
        except Exception as error:  # without a response, the client would wait for ever
            logging.getLogger(__name__).exception("a request in a bundle failed: %s", head.subject)
            response = Response(repr(error), 500)
        named = {name: value for name, value in response.headers.items() if name.startswith("x-qinglan-")}
        ready.put_nowait(
            encode_frame(FrameHeader(head.position, str(response.status_code), named), bytes(response.body))
        )

    tasks = [asyncio.create_task(answer(head, body)) for head, body in requests]
    try:
        left = len(tasks)
        while left:
            pieces = [await ready.get()]
            while not ready.empty():
                pieces.append(ready.get_nowait())
            left -= len(pieces)
            yield b"".join(pieces)
    finally:  # if the client is gone, only the waiting ends; paid calls continue in other tasks
        for task in tasks:
            task.cancel()
