"""The vLLM that serves a rewriter: its command line, and the completions that are requested from it.

The GPU runtimes, the evaluation and the tests start vLLM with the same options, and our server and the evaluation
request the same completions, so that the judged model is the served one.

    engine_options("rewriter", adapter="/mnt/models/model/adapter", gpus=2)

Options: https://docs.vllm.ai/en/latest/cli/serve.html
"""

from typing import Any

import orjson

from qinglan.errors import OutageError
from qinglan.rewriter.model import GeneratedRewrite
from qinglan.text.text import one_line

CONTEXT_TOKENS = 2048
"""Largest number of tokens of prompt and rewrite together, because no profile trains with longer rows
(`sft.max_length`)."""

MAX_CONCURRENCY = 128
"""Largest number of rewrites that the engine writes at once; the server sends it no more requests at once."""

MAX_LORA_RANK = 128
"""Largest rank of an adapter, one of the values that vLLM accepts. An exported adapter has the ranks of SFT and PPO
together: 16 + 64."""

BASE_NAME = "base"
"""Model name in a request for the base model without its adapter."""

ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # FlashInfer compiles its sampler at each start, and images have neither nvcc nor a C++ compiler.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""Environment of the engine: no requests to other hosts, and PyTorch's sampler."""

COMPLETIONS_PATH, HEALTH_PATH, MODELS_PATH = "/v1/completions", "/health", "/v1/models"


def engine_options(name: str, adapter: str = "", gpus: int = 1, context: int = CONTEXT_TOKENS) -> list[str]:
    """Return the options of `vllm serve` that follow the folder of weights. That folder holds a merged model or, if
    `adapter` is set, the adapter's base model.

    `context` is the token limit of the model; vLLM does not start with a larger `--max-model-len`.
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
        "--generation-config=vllm",  # else sampling settings of the folder apply, such as a repetition penalty
    ]


def completion_request(model: str, prompt: str, max_new_tokens: int) -> dict[str, Any]:
    """Build the body of a request for a greedy completion of a rendered prompt, which already contains all special
    tokens."""
    return {
        "model": model, "prompt": prompt, "temperature": 0, "max_tokens": max_new_tokens, "add_special_tokens": False,
    }  # fmt: skip


def read_completion(content: bytes, where: str) -> GeneratedRewrite:
    """Read the rewrite from a completion. A response without a text is an outage, not an empty rewrite."""
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
    """Read from the engine's list of models how many tokens prompt and answer may have together; None if it has no
    limit."""
    try:
        limits = [card.get("max_model_len") for card in orjson.loads(models)["data"]]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return None
    return next((limit for limit in limits if isinstance(limit, int)), None)
