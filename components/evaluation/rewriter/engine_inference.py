"""Rewrite with students that vLLM serves, with the options of the GPU runtime.

Rewrites are requested from the engine in the same form as our server requests them. They are scored without the
server's guard, as with transformers; only timed rewrites go through our server. This process loads no model, since
the engine needs the GPU's memory.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.fit import engine_settings
from components.evaluation.rewriter.student_timing import (
    SERVED_SECONDS,
    StudentOutput,
    ready_seconds,
    rewriter_server,
    time_student,
)
from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.http.http_client import AsyncClient, async_client, sync_client
from qinglan.models.references import refuse_foreign_files
from qinglan.prompts import Message, PromptInput, student_messages
from qinglan.rewriter.card import RewriterCard, model_context, read_card, refuse_other_prompts
from qinglan.rewriter.engine import (
    COMPLETIONS_PATH,
    MODELS_PATH,
    completion_request,
    context_tokens,
    engine_options,
    read_completion,
)
from qinglan.rewriter.engine_process import Engine, run_engine
from qinglan.rewriter.model import GeneratedRewrite, StudentPrompt, fit_prompt, load_tokenizer
from qinglan.terminal.progress import progress

NAME = "rewriter"
ENGINE_SECONDS = 600.0
"""Seconds allowed for vLLM's start, besides the time to read the weights. Imports and compiling kernels take minutes
on a busy machine, even for a small model. An engine that exits is noticed at once."""


def rewrite_with_engines(
    models: Mapping[str, Path], rows: Sequence[PromptInput], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    """Rewrite all rows with each student, and measure the student's latency. Students work one after another, so that
    no other engine disturbs the measurement."""
    for folder in models.values():
        servable_card(folder)
    require_cards(config.serving_gpus)
    # A start takes minutes, so engines start at the same time if each has its own cards. On a shared card they would
    # disturb each other, since vLLM measures the free memory while it starts (vllm/v1/worker/gpu_worker.py,
    # determine_available_memory).
    gpus = gpus_of_engines(visible_gpus(), engine_settings(config).tensor_parallel, len(models))
    if not gpus:
        outputs = {}
        for name, folder in models.items():
            with student_engine(folder, config) as engine:
                outputs[name] = _rewrite(name, folder, rows, config, engine)
        return outputs
    with ExitStack() as engines:
        with ThreadPoolExecutor() as pool:
            starts = {
                name: pool.submit(engines.enter_context, student_engine(models[name], config, cards))
                for name, cards in zip(models, gpus, strict=True)
            }
        running = {name: start.result() for name, start in starts.items()}
        return {name: _rewrite(name, models[name], rows, config, engine) for name, engine in running.items()}


def gpus_of_engines(visible: Sequence[str], each: int, engines: int) -> list[Sequence[str]]:
    """Return the GPUs of each engine, `each` GPUs per engine. The list is empty for a single engine or if there are
    too few GPUs; the engines then run one after another."""
    if engines == 1 or len(visible) < each * engines:
        return []
    return [visible[at * each : (at + 1) * each] for at in range(engines)]


def visible_gpus() -> list[str]:
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def student_engine(folder: Path, config: EvaluateConfig, gpus: Sequence[str] = ()) -> Iterator[Engine]:
    context = model_context(folder)
    options = [*engine_options(NAME, gpus=config.serving_gpus, context=context), *config.vllm_options]
    seconds = ENGINE_SECONDS + ready_seconds(folder)
    with (
        TemporaryDirectory(prefix="qinglan-") as logs,
        run_engine(folder, options, Path(logs) / "vllm.log", seconds, gpus=gpus) as engine,
    ):
        yield engine


def _rewrite(
    name: str, folder: Path, rows: Sequence[PromptInput], config: EvaluateConfig, engine: Engine
) -> StudentOutput:
    card = servable_card(folder)
    messages = [student_messages(row, card.system_prompts.get(row.tenant_id, "")) for row in rows]
    with explained_outages(engine, name), ExitStack() as servers:
        prompts = fitted_prompts(folder, card, messages, engine.url)
        requests = [completion_request(NAME, prompt.text, card.max_new_tokens) for prompt in prompts]
        batched = asyncio.run(write_all(name, engine.url, requests, config.batch))
        batched = batched._replace(trimmed=sum(prompt.trimmed for prompt in prompts))
        url = {str(student): served for student, served in config.rewriter_urls.items()}.get(name)
        url = url or servers.enter_context(rewriter_server(folder, f"--backend={engine.url}"))()
        return time_student(batched, url, rows, config.latency_rows, "vLLM")


def require_cards(cards: int) -> None:
    """Raise a ConfigError if this machine has fewer GPUs than will serve the student, because latency and cost would
    differ from production. A machine without a GPU is accepted, since vLLM then runs on the CPU."""
    import torch

    if 0 < (here := torch.cuda.device_count()) < cards:  # 0: vLLM runs on the CPU
        raise ConfigError(
            f"evaluate.serving_gpus: {cards} GPUs serve the student, and this machine has {here}. Set the number "
            "that will serve it, or evaluate on a machine with as many."
        )


@contextmanager
def explained_outages(engine: Engine, name: str) -> Iterator[None]:
    """Add the last lines of the engine's log to an OutageError that is raised inside the block."""
    try:
        yield
    except OutageError as error:
        raise engine.outage(f"did not write all rewrites of {name} ({error})") from error


def servable_card(folder: Path) -> RewriterCard:
    """Read the model's card; a model that our server would refuse is refused here too."""
    card = read_card(folder)
    refuse_other_prompts(folder, card)
    refuse_foreign_files(folder)
    return card


def fitted_prompts(
    folder: Path, card: RewriterCard, prompts: Sequence[list[Message]], url: str
) -> list[StudentPrompt]:
    """Render the prompts as our server sends them to this engine. The oldest turns of a history that is too long for
    the engine's context are left out."""
    try:
        with sync_client(url, timeout=SERVED_SECONDS) as http:
            limit = context_tokens(http.get(MODELS_PATH).content)
    except httpx2.HTTPError as error:
        raise OutageError(f"no answer: {type(error).__name__}") from error
    # vLLM refuses a prompt beyond its --max-model-len, which may be smaller than the model's own context.
    budget = card.prompt_tokens(min(model_context(folder), limit or sys.maxsize))
    tokenizer = load_tokenizer(folder)
    return [fit_prompt(tokenizer, messages, budget) for messages in prompts]


async def write_all(name: str, url: str, requests: Sequence[dict[str, object]], together: int) -> StudentOutput:
    """Request all completions, at most `together` at a time. The first failure cancels the other requests."""
    turns = asyncio.Semaphore(together)
    started = time.perf_counter()
    with progress(f"evaluate {name}", len(requests)) as tick:
        async with async_client(url, timeout=SERVED_SECONDS) as client:

            async def write(request: dict[str, object]) -> GeneratedRewrite:
                async with turns:
                    rewrite = await _complete(client, request)
                tick()
                return rewrite

            # A TaskGroup cancels its other tasks at the first failure, and raises a group of errors. Callers expect a
            # single error, so it is unwrapped.
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(write(request)) for request in requests]
            except* QinglanError as errors:
                raise errors.exceptions[0] from errors
    return StudentOutput.of([task.result() for task in tasks], time.perf_counter() - started)


async def _complete(client: AsyncClient, request: dict[str, object]) -> GeneratedRewrite:
    try:
        response = await client.post(COMPLETIONS_PATH, json=request)
    except httpx2.HTTPError as error:
        raise OutageError(f"no answer: {type(error).__name__}") from error
    if 400 <= response.status_code < 500:
        raise ConfigError(
            f"vLLM refused a prompt of the test: {response.text[:300]} A longer context is set by "
            "evaluate.vllm_options: [--max-model-len=...]."
        )
    if response.status_code != 200:
        raise OutageError(f"status {response.status_code}")
    return read_completion(response.content, str(client.base_url))
