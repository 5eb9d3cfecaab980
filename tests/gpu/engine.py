"""The engine of the GPU runtimes on this machine's first GPU, with their own options: a start, texts, speed.

    PYTHON=$(python -m pipelines.execute.environments serve)
    $PYTHON -m tests.gpu.engine start OUT                           # where no compiler but gcc is in reach
    $PYTHON -m tests.gpu.engine same OUT --base BASE --adapter ADAPTER --merged MERGED   # from tests.gpu.adapter
    $PYTHON -m tests.gpu.engine load OUT --shape Qwen/Qwen3-32B

The last line is JSON. `start` and `load` have vLLM make up the weights.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.open_loop import ask_by_the_clock, latency
from qinglan.rewriter.engine import BASE_NAME, COMPLETIONS_PATH, completion_request, engine_options
from qinglan.rewriter.engine_process import run_engine
from qinglan.terminal import say_json
from tests.gpu.training_files import new_folder_on_a_gpu
from tests.gpu.wide_models import write_folder

NAME = "rewriter"
COMPILERS = ("nvcc", "ptxas", "cicc", "g++", "c++", "clang")
READY_SECONDS = 600.0
PART_OF_A_CARD = "--gpu-memory-utilization=0.3"
LOG_LINES = ("KV cache", "Model loading took", "torch.compile took", "capturing finished")
RATES, SECONDS = (4.0, 16.0, 32.0), 8.0
PROMPT_WORDS, ANSWER_TOKENS = 60, 40
WORDS = (
    "虾青素", "软胶囊", "每日", "服用", "频次", "饭前", "饭后", "老人", "孕妇", "能不能", "一天", "吃几次", "发货",
)  # fmt: skip


def without_weights(options: Sequence[str]) -> list[str]:
    return [*(option for option in options if not option.startswith("--load-format")), "--load-format=dummy"]


def prompts(number: int, words: int) -> list[str]:
    draw = random.Random(0)
    texts = ("".join(draw.choices(WORDS, k=words)) for _ in range(number))
    return [f"<|im_start|>user\n{at} {text}<|im_end|>\n<|im_start|>assistant\n" for at, text in enumerate(texts)]


@contextmanager
def compilers_out_of_reach(folder: Path) -> Iterator[None]:
    """A PATH without compilers but gcc, as in an image, and caches that hold nothing yet."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = programs / program.name
            if not program.name.startswith(COMPILERS) and not link.is_symlink():
                link.symlink_to(program)
    before = dict(os.environ)
    os.environ |= {"PATH": str(programs), "CUDA_HOME": "/nonexistent"}
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "FLASHINFER_WORKSPACE_BASE": str(folder / "cache")}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def start(out: Path) -> dict[str, Any]:
    """Seconds until it is ready, and an answer that is sampled and not the likeliest."""
    model = write_folder(out / "model", "Qwen/Qwen3-0.6B", weights=False)
    options = [*without_weights(engine_options(NAME)), PART_OF_A_CARD]
    started = time.monotonic()
    with compilers_out_of_reach(out), run_engine(model, options, out / "start.log", READY_SECONDS) as engine:
        ready = time.monotonic() - started
        body = completion_request(NAME, prompts(1, PROMPT_WORDS)[0], ANSWER_TOKENS) | {
            "temperature": 0.7,
            "top_p": 0.9,
        }
        answer = httpx.post(engine.url + COMPLETIONS_PATH, json=body, timeout=60, trust_env=False)
    return {"ready": round(ready, 1), "status": answer.status_code}


def learned_answers() -> list[tuple[str, str]]:
    """Prompts of `same`, each with the answer that its adapter learned by heart."""
    return [(prompt, "".join(random.Random(prompt).choices(WORDS, k=3))) for prompt in prompts(64, 4)]


def same(out: Path, base: Path, adapter: Path, merged: Path) -> dict[str, Any]:
    """Texts that the adapter on its base and the merged weights both write, and those of the base alone."""
    with run_engine(merged, [*engine_options(NAME), PART_OF_A_CARD], out / "merged.log", READY_SECONDS) as engine:
        of_merged = asyncio.run(write(engine.url, NAME))
    options = [*engine_options(NAME, str(adapter.resolve())), PART_OF_A_CARD]
    with run_engine(base, options, out / "adapter.log", READY_SECONDS) as engine:
        of_adapter, of_base = (asyncio.run(write(engine.url, model)) for model in (NAME, BASE_NAME))
    return compare_texts(of_merged, of_adapter, of_base, [answer for _, answer in learned_answers()])


def compare_texts(
    merged: Sequence[str], adapter: Sequence[str], base: Sequence[str], learned: Sequence[str]
) -> dict[str, Any]:
    def equal(texts: Sequence[str]) -> int:
        return sum(map(str.__eq__, merged, texts))

    return {
        "of": len(merged), "adapter's": equal(adapter), "the base's": equal(base), "learned": equal(learned),
        "different texts": len(set(merged)),
    }  # fmt: skip


async def write(url: str, model: str) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
        requests = [completion_request(model, prompt, 24) for prompt, _ in learned_answers()]
        answers = await asyncio.gather(*(http.post(url + COMPLETIONS_PATH, json=request) for request in requests))
    return [answer.json()["choices"][0]["text"] for answer in answers]


def load(out: Path, shape: str) -> dict[str, Any]:
    """Waiting times at growing rates, whether or not the questions before are answered."""
    model, log = write_folder(out / "model", shape, weights=False), out / "load.log"
    started = time.monotonic()
    with run_engine(model, without_weights(engine_options(NAME)), log, READY_SECONDS) as engine:
        ready = time.monotonic() - started
        asyncio.run(at_rate(engine.url, 2.0))  # the first questions of a process are slow
        rates = [asyncio.run(at_rate(engine.url, rate)) for rate in RATES]
    lines = log.read_text(errors="replace").splitlines()
    log_lines = [line.partition("] ")[2] for line in lines if any(part in line for part in LOG_LINES)]
    return {"shape": shape, "ready": round(ready, 1), "rates": rates, "log": log_lines}


async def at_rate(url: str, rate: float) -> dict[str, Any]:
    requests = [
        completion_request(NAME, prompt, ANSWER_TOKENS) | {"ignore_eos": True}
        for prompt in prompts(int(rate * SECONDS), PROMPT_WORDS)
    ]
    started = time.monotonic()
    answers = await ask_by_the_clock(url + COMPLETIONS_PATH, [orjson.dumps(request) for request in requests], rate)
    seconds = time.monotonic() - started
    usage = [orjson.loads(answer.content)["usage"] for answer in answers if answer.status == 200]
    return {
        "per second": rate, "sent": len(requests), "answered": len(usage), "p50, p95, p99, ms": latency(answers),
        "prompt tokens": round(statistics.fmean(use["prompt_tokens"] for use in usage), 1) if usage else 0.0,
        "tokens a second": round(sum(use["completion_tokens"] for use in usage) / seconds, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.engine", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("start", "same", "load"):
        kinds.add_parser(kind).add_argument("out", type=Path)
    for folder in ("base", "adapter", "merged"):
        kinds.choices["same"].add_argument(f"--{folder}", type=Path, required=True)
    kinds.choices["load"].add_argument("--shape", default="Qwen/Qwen3-32B", help="of qinglan/sizing/shapes.yaml")
    options = vars(parser.parse_args())
    new_folder_on_a_gpu(options["out"])
    checks: dict[str, Callable[..., dict[str, Any]]] = {"start": start, "same": same, "load": load}
    say_json(checks[options.pop("kind")](**options))


if __name__ == "__main__":
    main()
