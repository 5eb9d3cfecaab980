"""Several requests in one message: each is answered as if it had come alone, as soon as its answer is ready."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from fastapi import Response

from qinglan.request_bundles import FrameDecoder, FrameHeader, encode_frame

PostHandler = Callable[[bytes, Mapping[str, str]], Awaitable[Response]]


async def answer_bundle(content: bytes, posts: Mapping[str, PostHandler]) -> AsyncIterator[bytes]:
    """Yield the answers as frames; those that are ready together come in one piece."""
    ready: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(head: FrameHeader, body: bytes) -> None:
        try:
            response = await posts[head.what](body, head.headers)
        except Exception as error:  # an answer that never comes would be waited for
            logging.getLogger(__name__).exception("a request in a bundle failed: %s", head.what)
            response = Response(repr(error), 500)
        named = {name: value for name, value in response.headers.items() if name.startswith("x-qinglan-")}
        ready.put_nowait(
            encode_frame(FrameHeader(head.place, str(response.status_code), named), bytes(response.body))
        )

    tasks = [asyncio.create_task(answer(head, body)) for head, body in FrameDecoder().feed(content)]
    try:
        left = len(tasks)
        while left:
            pieces = [await ready.get()]
            while not ready.empty():
                pieces.append(ready.get_nowait())
            left -= len(pieces)
            yield b"".join(pieces)
    finally:  # the client may be gone: calls under way go on elsewhere, only the waiting ends
        for task in tasks:
            task.cancel()
