"""The vLLM that serves a rewriter: its command line and the completions that are requested from it.

The GPU runtimes, the evaluation and the tests start it with the same options, and our server and the evaluation ask
it for the same completions: the model that is judged is the model that is served.

    engine_options("rewriter", adapter="/mnt/models/model/adapter", gpus=2)
"""

from typing import Any

import orjson

from qinglan.errors import OutageError
from qinglan.rewriter.model import GeneratedRewrite
from qinglan.text.text import one_line

CONTEXT_TOKENS = 2048
"""Longest prompt and rewrite together: no profile's training shows a longer row (`sft.max_length`)."""

MAX_CONCURRENCY = 128
"""Questions that the engine writes at the same time; the server before it sends no more."""

MAX_LORA_RANK = 128
"""vLLM takes powers of two: an exported adapter holds SFT's rank and PPO's side by side, 16 + 64."""

BASE_NAME = "base"
"""Name of the base model beside its adapter: a request without the adapter must say so."""

ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # FlashInfer's sampler would be compiled at each start; images have no nvcc and no C++ compiler in reach.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""Environment of the engine: nothing is called, and PyTorch samples."""

COMPLETIONS_PATH, HEALTH_PATH, MODELS_PATH = "/v1/completions", "/health", "/v1/models"


def engine_options(name: str, adapter: str = "", gpus: int = 1, context: int = CONTEXT_TOKENS) -> list[str]:
    """Options of `vllm serve`, after the weights' folder: the merged model's, or a base model's under an adapter.

    `context` are the tokens that the model itself reads and writes at most: vLLM refuses to start with more.
    """
    lora = ["--enable-lora", f"--max-lora-rank={MAX_LORA_RANK}", f"--lora-modules={name}={adapter}"]
    return [
        f"--served-model-name={BASE_NAME if adapter else name}",
        *(lora if adapter else ()),
        f"--tensor-parallel-size={gpus}",
        "--dtype=bfloat16",
        "--load-format=safetensors",  # a pickle could run code
        f"--max-model-len={min(context, CONTEXT_TOKENS)}",
        f"--max-num-seqs={MAX_CONCURRENCY}",
        "--generation-config=vllm",  # else the folder's own sampling settings, such as a repetition penalty, apply
    ]


def completion_request(model: str, prompt: str, max_new_tokens: int) -> dict[str, Any]:
    """The body of a greedy completion of a rendered prompt, whose special tokens are all in its text."""
    return {
        "model": model, "prompt": prompt, "temperature": 0, "max_tokens": max_new_tokens, "add_special_tokens": False,
    }  # fmt: skip


def read_completion(content: bytes, where: str) -> GeneratedRewrite:
    """The text of a completion; an answer without one is an outage, never an empty rewrite."""
    try:
        body = orjson.loads(content)
        choice, usage = body["choices"][0], body["usage"]
        text, cut = choice["text"], choice["finish_reason"] == "length"
        tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
        text = None
    if not isinstance(text, str):
        raise OutageError(f"The backend at {where} answered with no completion. Is it a vLLM?")
    return GeneratedRewrite(one_line(text), *tokens, cut, 0.0)


def context_tokens(models: bytes) -> int | None:
    """The engine's longest prompt and answer together, as its list of models says; None where it does not say."""
    try:
        limits = [card.get("max_model_len") for card in orjson.loads(models)["data"]]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return None
    return next((limit for limit in limits if isinstance(limit, int)), None)
