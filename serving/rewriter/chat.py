"""OpenAI's chat completions: a request has the training prompt as messages, and the answer is one line.

If a request asks for a stream, the stream begins only when the rewrite is complete and has passed the guard, because
the guard judges whole texts. To withdraw a half-shown line would be worse than to show it 100 ms later.
"""

import time
from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from kserve.errors import ModelNotFound
from starlette.responses import StreamingResponse

from serving.kserve_app import JSON, read_json
from serving.rewriter.model import GuardedRewrite, KServeRewriter
from serving.rewriter.protocols import ChatRequest, read_chat_request, read_messages
from serving.rewriter.request_record import current_request

CHAT_PATH = "/openai/v1/chat/completions"


def chat_router(model: KServeRewriter) -> APIRouter:
    router = APIRouter()

    async def complete(request: Request) -> Response:
        chat = read_chat_request(read_json(await request.body(), request.headers))
        if chat.model != model.name:
            raise ModelNotFound()
        [answered] = await model.answer([read_messages(chat.messages, model.card.system_prompts)])
        request_id = f"chatcmpl-{current_request().request_id}"
        about = {"id": request_id, "created": int(time.time()), "model": model.version}
        if answered.fallback:
            about["fallback"] = answered.fallback
        if chat.stream:
            return StreamingResponse(_events(about, answered, chat), media_type="text/event-stream")
        message = {"role": "assistant", "content": answered.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        completion = {**about, "object": "chat.completion", "choices": [choice], "usage": _usage(answered)}
        return Response(orjson.dumps(completion), media_type=JSON)

    async def models() -> dict[str, Any]:
        entry = {"id": model.name, "object": "model", "created": 0, "owned_by": "qinglan"}
        return {"object": "list", "data": [entry]}

    router.add_api_route(CHAT_PATH, complete, methods=["POST"])
    router.add_api_route("/openai/v1/models", models, methods=["GET"])
    return router


def _events(about: dict[str, Any], answered: GuardedRewrite, chat: ChatRequest) -> Iterator[bytes]:
    deltas: tuple[dict[str, str], ...] = ({"role": "assistant", "content": ""}, {"content": answered.text}, {})
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop", "logprobs": None}
        yield _event({**about, "object": "chat.completion.chunk", "choices": [choice]})
    if chat.stream_options and chat.stream_options.include_usage:
        yield _event({**about, "object": "chat.completion.chunk", "choices": [], "usage": _usage(answered)})
    yield b"data: [DONE]\n\n"


def _usage(answered: GuardedRewrite) -> dict[str, int]:
    prompt, written = answered.written.prompt_tokens, answered.written.new_tokens
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def _event(event: dict[str, Any]) -> bytes:
    # https://html.spec.whatwg.org/multipage/server-sent-events.html: an empty line ends an event.
    return b"data: " + orjson.dumps(event) + b"\n\n"
