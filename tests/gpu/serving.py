"""The GPU runtimes' own vLLM on this machine's GPU: does it start where no CUDA compiler is, as in the image; are an
adapter's texts those of the merged weights; how fast is it.

    $(python -m pipelines.environments serve) -m tests.gpu.serving start OUT
    ... same OUT --model MERGED --adapter ADAPTER --base BASE
    ... load OUT --shape Qwen/Qwen3-32B

The last line is JSON.
"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.open_loop import ask_by_the_clock, latency
from qinglan.errors import OutageError
from qinglan.rewriter.engine import COMPLETIONS_PATH, completion_request, engine_options
from qinglan.rewriter.engine_process import run_engine
from qinglan.terminal import say_json
from tests.gpu.wide_models import write_folder

NAME = "rewriter"
COMPILERS = ("nvcc", "g++", "c++", "cicc", "ptxas")
READY_SECONDS = 240.0
WORDS = "虾青素 软胶囊 每日 服用 频次 饭前 饭后 老人 孕妇 能不能 一天 吃几次 用户 正在 了解 价格 发货 退款".split()


@contextmanager
def as_in_the_image(out: Path) -> Iterator[None]:
    """A PATH without CUDA's compiler and without one for C++: images of a release have gcc alone."""
    folder = out / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith(COMPILERS):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    before = dict(os.environ)
    os.environ |= {"PATH": str(folder), "CUDA_HOME": "/nonexistent", "XDG_CACHE_HOME": str(out / "cache")}
    os.environ |= {"FLASHINFER_WORKSPACE_BASE": str(out / "flashinfer")}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def start(out: Path) -> dict[str, Any]:
    """Start with the runtime's options, as it is, and without FlashInfer's sampler."""
    model = write_folder(out / "model", "Qwen/Qwen3-0.6B", weights=False)
    tried = {}
    with as_in_the_image(out):
        for setting in ("default", "0"):
            if setting != "default":
                os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = setting
            tried[setting] = try_start(model, out / f"start-{setting}.log")
    return {"FlashInfer's sampler": tried, "nvcc": shutil.which("nvcc")}


def try_start(model: Path, log: Path) -> dict[str, Any]:
    started = time.monotonic()
    options = [option for option in engine_options(NAME) if not option.startswith("--load-format")]
    try:
        with run_engine(model, [*options, "--load-format=dummy", "--gpu-memory-utilization=0.3"], log, READY_SECONDS) as engine:
            ready = time.monotonic() - started
            body = completion_request(NAME, "一天吃几次", 16) | {"temperature": 0.7, "top_p": 0.9}
            answer = httpx.post(engine.url + COMPLETIONS_PATH, json=body, timeout=60, trust_env=False)
            return {"ready": round(ready, 1), "sampled": answer.status_code, "text": answer.text[:200]}
    except OutageError as error:
        return {"error": str(error)[:300], "log": key_lines(log)}


def key_lines(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    return [line[:300] for line in lines if "rror" in line][-12:]


def same(out: Path, model: Path, adapter: Path, base: Path) -> dict[str, Any]:
    """Texts of the adapter on its base, of the merged weights, and of transformers on this GPU."""
    import torch

    from qinglan.rewriter.model import Student

    prompts = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in questions(64)]
    student = Student.load(model)
    student.model.to(torch.bfloat16).to("cuda")
    alone = [answer.text for answer in student.write_texts(prompts)]
    del student
    torch.cuda.empty_cache()
    texts = {}
    small = "--gpu-memory-utilization=0.3"
    for name, folder, options in (
        ("merged", model, engine_options(NAME)), ("adapter", base, engine_options(NAME, str(adapter))),
    ):  # fmt: skip
        with run_engine(folder, [*options, small], out / f"{name}.log", READY_SECONDS) as engine:
            texts[name] = asyncio.run(write(engine.url, prompts, 16))
    pairs = {"merged and adapter": ("merged", "adapter")}
    equal = {name: share(texts[one], texts[other]) for name, (one, other) in pairs.items()}
    return {"equal": equal | {f"{name} and transformers": share(alone, texts[name]) for name in texts}, "texts": len(prompts), "different": len(set(alone))}


def share(some: Sequence[str], others: Sequence[str]) -> float:
    return statistics.fmean(" ".join(one.split()) == " ".join(other.split()) for one, other in zip(some, others, strict=True))


async def write(url: str, prompts: Sequence[str], tokens: int) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
        asked = [http.post(url + COMPLETIONS_PATH, json=completion_request(NAME, prompt, tokens)) for prompt in prompts]
        return [answer.json()["choices"][0]["text"] for answer in await asyncio.gather(*asked)]


def questions(number: int, words: int = 12) -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(WORDS, k=words)) for _ in range(number)]


def load(out: Path, shape: str, prompt_words: int, answer_tokens: int, rates: Sequence[float], seconds: float) -> dict[str, Any]:
    """Open loop at growing rates; weights are vLLM's dummies, answers of a fixed length."""
    model = write_folder(out / "wide", shape, weights=False)
    options = [option for option in engine_options(NAME) if not option.startswith("--load-format")]
    started = time.monotonic()
    with run_engine(model, [*options, "--load-format=dummy"], out / "load.log", READY_SECONDS) as engine:
        ready = time.monotonic() - started
        table = [asyncio.run(at_rate(engine.url, rate, seconds, prompt_words, answer_tokens)) for rate in (2.0, *rates)][1:]
    cache = [line[-120:] for line in (out / "load.log").read_text(errors="replace").splitlines() if "KV cache" in line or "model weights take" in line or "Model loading took" in line or "raph capturing finished" in line]
    return {"shape": shape, "ready": round(ready, 1), "rates": table, "log": cache}


async def at_rate(url: str, rate: float, seconds: float, words: int, tokens: int) -> dict[str, Any]:
    texts = questions(int(rate * seconds), words)
    bodies = [
        orjson.dumps(completion_request(NAME, f"<|im_start|>user\n{number} {text}<|im_end|>\n<|im_start|>assistant\n", tokens) | {"ignore_eos": True})
        for number, text in enumerate(texts)
    ]  # fmt: skip
    started = time.monotonic()
    answers = await ask_by_the_clock(url + COMPLETIONS_PATH, bodies, rate)
    took = time.monotonic() - started
    usage = [orjson.loads(answer.content).get("usage") or {} for answer in answers if answer.status == 200]
    return {
        "per second": rate, "answered": len(usage), "sent": len(bodies), "p50 p95 p99 ms": list(latency(answers)),
        "prompt tokens": statistics.fmean(use["prompt_tokens"] for use in usage) if usage else 0,
        "tokens a second": round(sum(use["completion_tokens"] for use in usage) / took, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["start", "same", "load"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--shape", default="Qwen/Qwen3-32B")
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 4, 16, 32])
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.what == "start":
        result = start(out)
    elif options.what == "same":
        result = same(out, options.model, options.adapter, options.base)
    else:
        result = load(out, options.shape, options.words, options.tokens, options.rates, options.seconds)
    say_json(result)


if __name__ == "__main__":
    sys.exit(main())
