"""A gateway that answers everything at once: `python -m benchmarks.fast_gateway`. For the memory of stages."""

from typing import Any

from benchmarks import slow_rag
from benchmarks.standin import serve

MESSAGE = {"role": "assistant", "content": "虾青素 每日服用频次"}
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 0, "model": "standin",
    "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}  # fmt: skip


def answer(path: str, body: bytes) -> dict[str, Any]:
    if path == "/v1/chat/completions":
        return COMPLETION
    return {} if path.startswith("/v1") else slow_rag.answer(path, body)


if __name__ == "__main__":
    serve(answer)
