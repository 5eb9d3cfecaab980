"""Many requests in one message: each is answered for itself, and nobody waits for another."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from qinglan.errors import DataError
from qinglan.http.request_bundles import (
    BUNDLE_PATH,
    MAX_MESSAGE_BYTES,
    MAX_REQUESTS,
    BundleClient,
    BundledResponse,
    FrameDecoder,
    FrameHeader,
    _PendingRequest,
    encode_frame,
    split_into_messages,
)
from qinglan.llm.client import GatewayClient
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from serving.gateway.bundle_handler import answer_bundle, read_bundle
from tests.qinglan.reward.conftest import GOOD, NEED, QUESTION, Services
from tests.servers.echo_servers import gateway, gateway_config, running

Post = Callable[[bytes, Mapping[str, str]], Awaitable[Response]]


def server(post: Post, sizes: list[int]) -> FastAPI:
    """Answers a bundle's requests for /x as the gateway does; notes how many came in each message."""
    app = FastAPI()

    async def bundle(request: Request) -> Response:
        content = await request.body()
        requests = read_bundle(content, {"/x": post})
        sizes.append(len(requests))
        return StreamingResponse(answer_bundle(requests, {"/x": post}))

    app.add_route(BUNDLE_PATH, bundle, ["POST"])
    return app


def post_all(url: str, *bodies: bytes) -> list[Any]:
    async def run() -> list[Any]:
        bundles = BundleClient(url)
        try:
            posts = (bundles.post("/x", body, {"x-qinglan-row": "1"}) for body in bodies)
            return list(await asyncio.gather(*posts, return_exceptions=True))
        finally:
            await bundles.aclose()

    return asyncio.run(run())


async def echo(body: bytes, headers: Mapping[str, str]) -> Response:
    return Response(body + headers["x-qinglan-row"].encode(), 200 if body else 422, {"x-qinglan-call": "k"})


def test_requests_of_one_event_loop_turn_share_a_message_and_get_their_own_answers() -> None:
    sizes: list[int] = []
    with running(server(echo, sizes)) as url:
        replies = post_all(url, b"a", b"", "问\n".encode())

    assert sizes == [3]
    assert [(reply.status, reply.content) for reply in replies] == [
        (200, b"a1"),
        (422, b"1"),
        (200, "问\n1".encode()),
    ]
    assert [reply.headers["x-qinglan-call"] for reply in replies] == ["k"] * 3


def test_a_quick_answer_does_not_wait_for_a_slow_one() -> None:
    let_go = threading.Event()

    async def held(body: bytes, _: Mapping[str, str]) -> Response:
        if body == b"slow" and not await asyncio.to_thread(let_go.wait, 20):
            return Response(b"the quick answer has not come", 500)
        return Response(body)

    async def work(url: str) -> list[bytes]:
        bundles, order = BundleClient(url), list[bytes]()

        async def ask(body: bytes) -> None:
            order.append((await bundles.post("/x", body, {})).content)
            let_go.set()  # the quick one's answer lets the slow one go

        await asyncio.gather(ask(b"slow"), ask(b"quick"))
        await bundles.aclose()
        return order

    with running(server(held, [])) as url:
        assert asyncio.run(work(url)) == [b"quick", b"slow"]


def test_a_request_without_an_answer_ends_when_its_client_is_closed() -> None:
    async def run(url: str) -> bool:
        bundles = BundleClient(url)
        pending = asyncio.create_task(bundles.post("/x", b"1", {"x-qinglan-row": "1"}))
        await asyncio.wait_for(begun.wait(), 60)
        await bundles.aclose()
        await asyncio.wait([pending], timeout=60)
        return pending.cancelled()

    begun = asyncio.Event()

    async def never(body: bytes, headers: Mapping[str, str]) -> Response:
        loop.call_soon_threadsafe(begun.set)
        await asyncio.sleep(600)
        raise AssertionError

    with running(server(never, [])) as url, asyncio.Runner() as runner:
        loop = runner.get_loop()
        assert runner.run(run(url))


def test_a_request_whose_message_is_not_begun_ends_when_its_client_is_closed() -> None:
    async def run() -> bool:
        bundles = BundleClient("http://127.0.0.1:9")
        pending = asyncio.create_task(bundles.post("/x", b"1", {}))
        for _ in range(2):  # the request is put into a message; the message's task has not run yet
            await asyncio.sleep(0)
        await bundles.aclose()
        await asyncio.wait([pending], timeout=60)
        return pending.cancelled()

    assert asyncio.run(run())


def test_a_request_that_breaks_the_server_is_an_answer_of_its_own() -> None:
    async def broken(body: bytes, _: Mapping[str, str]) -> Response:
        return Response(str(1 / len(body)))

    with running(server(broken, [])) as url:
        assert [reply.status for reply in post_all(url, b"", b"a")] == [500, 200]


def test_each_request_without_an_answer_raises_its_own_error() -> None:
    async def half(request: Request) -> Response:
        [(head, body), _] = FrameDecoder().feed(await request.body())
        return Response(encode_frame(FrameHeader(head.position, "200", {}), body))

    app = FastAPI()
    app.add_route(BUNDLE_PATH, half, ["POST"])
    with running(app) as url:
        answered, lost = post_all(url, b"a", b"b")
    [nobody] = post_all(url, b"a")

    assert answered == BundledResponse(200, {}, b"a")
    assert isinstance(lost, httpx2.TransportError) and isinstance(nobody, httpx2.ConnectError)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    sent = [
        (FrameHeader(at, "200", {"x-qinglan-call": "问"}), body)
        for at, body in enumerate([b"a\nb", b"", b"[1]\n" * 50])
    ]
    content = b"".join(encode_frame(*frame) for frame in sent)

    frames = FrameDecoder()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert [frame for piece in pieces for frame in frames.feed(piece)] == sent


def test_a_frame_of_many_small_pieces_is_not_copied_for_each_of_them() -> None:
    """40,000 pieces of a frame of 8 MB: copied anew for each they would be 160 GB, half a minute's work."""
    sent = FrameHeader(0, "200", {}), b"x" * 8_000_000
    content, frames, began = encode_frame(*sent), FrameDecoder(), time.process_time()

    received = [frame for at in range(0, len(content), 200) for frame in frames.feed(content[at : at + 200])]

    assert received == [sent]
    assert time.process_time() - began < 5


def test_a_message_holds_so_many_requests_and_bytes_and_a_larger_one_goes_alone() -> None:
    def sizes(*lengths: int) -> list[int]:
        requests = [_PendingRequest("/x", b"." * length, {}, None) for length in lengths]  # type: ignore[arg-type]
        return [len(message) for message in split_into_messages(requests)]

    assert sizes(*[1] * (MAX_REQUESTS + 2)) == [MAX_REQUESTS, 2]
    assert sizes(10, MAX_MESSAGE_BYTES, 10) == [1, 1, 1]
    assert sizes() == []


def test_the_gateway_answers_paid_and_retrieved_in_one_message(tmp_path: Path) -> None:
    services = Services()
    request = RagRequest(query=QUESTION, rewritten_query=GOOD, tenant_id="fivedoctors", need=NEED)
    body = orjson.dumps({"改写": GOOD}).decode()

    async def work(url: str) -> list[Any]:
        async with gateway(gateway_config(url, url), tmp_path) as base:
            rag = RagClient.of_gateway(base)
            async with GatewayClient(base, "reward") as paid, rag:
                return list(
                    await asyncio.gather(
                        *(rag.retrieve(request) for _ in range(3)),
                        paid.ask("judge", [{"role": "user", "content": body}], row="行 1"),
                        paid.ask("judge", [{"role": "user", "content": body}], row="行 2", sample=1),
                        return_exceptions=True,
                    )
                )

    with running(services) as url:
        *retrieved, first, second = asyncio.run(work(url))

    assert [answer.data.recall[0].id for answer in retrieved] == ["gold"] * 3
    assert len(services.retrieved) == 1, "flown once"
    assert (first.cached, second.cached) == (False, False) and first.call != second.call


WHOLE = encode_frame(FrameHeader(0, "/x", {}), b"ab")


@pytest.mark.parametrize("content", [
    b"nonsense\n", b"{}\n", b"[0]\n", b'[0,"/x",{},-17]\n', b'[0,"/x",{},-1]\n', b'[0,"/x",{"a":1},0]\n',
    b'["0","/x",{},0]\n', b'[0,"/x",{},1.0]\n', b'[0,"/x",{},true]\n', b'[-1,"/x",{},0]\n', b'[0,"/else",{},0]\n',
    WHOLE + b"[1", WHOLE[:-1], b"no line's end", WHOLE * 129, b"[" * 100_000 + b"\n",
])  # fmt: skip
def test_a_broken_bundle_is_refused_whole(content: bytes) -> None:
    """A frame of a negative length was read again and again, for ever."""
    with pytest.raises(DataError, match="bundle: "):
        read_bundle(content, {"/x": answered_alone})


async def answered_alone(_: bytes, __: Mapping[str, str]) -> Response:
    return Response(b"{}")
