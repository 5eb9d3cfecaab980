"""The students at work: every test question rewritten, and a sample timed one by one under the serving code."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from components.evaluation.rewriter.config import EvaluateConfig
from qinglan.errors import OutageError
from qinglan.prompts import PromptInput
from qinglan.rewriter.model import GeneratedRewrite, Student
from qinglan.services import READY_SECONDS, start_service
from qinglan.terminal.progress import progress
from qinglan.text import normalise

SERVED_PATH = "/v1/models/rewriter:predict"
SERVED_SECONDS = 60.0
READ_BYTES_A_SECOND = 50e6
"""The slowest volume that a server is waited for: it reads its weights twice, for their digest and to load them."""


class StudentOutput(NamedTuple):
    """One student's rewrites, in the order of the questions, and what they took."""

    texts: list[str]
    cut: int
    """Rewrites that reached the limit without an end."""

    seconds: float
    """For all of them in batches."""

    latencies: list[float]
    """Seconds of single rewrites over HTTP, one by one."""

    otherwise: int
    """Timed rewrites that read otherwise than the batch's: padding and rounding, or another model is served."""

    machine: str


def rewrite_all(
    models: Mapping[str, Path], rows: Sequence[PromptInput], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    """Let every student rewrite every row, then time some rows as its users wait: where it is served, or served here.

    Without a GPU the servers start side by side, and nothing is measured before they are up. A GPU may have room for
    one model alone: there each server starts when every other model is gone.
    """
    with ExitStack() as servers:
        ahead = {} if _on_gpu() else {name: _enter(servers, name, folder, config) for name, folder in models.items()}
        import transformers.models.auto.modeling_auto  # noqa: F401  (it takes as long as a server takes to start)

        urls = {name: url() for name, url in ahead.items()}
        batches = {name: _in_batches(name, folder, rows, config.batch) for name, folder in models.items()}
        writings = {}
        for name, folder in models.items():
            with ExitStack() as alone:
                url = urls.get(name) or _enter(alone, name, folder, config)()
                writings[name] = _timed(batches[name], url, rows, config.latency_rows)
    return writings


def _enter(stack: ExitStack, name: str, folder: Path, config: EvaluateConfig) -> Callable[[], str]:
    """Start the student's server, unless it is served somewhere; the answer waits for its URL."""
    url = next((url for student, url in config.rewriter_urls.items() if student == name), "")
    return (lambda: url) if url else stack.enter_context(rewriter_server(folder))


class BatchOutput(NamedTuple):
    """One student's rewrites in batches, in the order of the questions."""

    texts: list[str]
    cut: int
    seconds: float


def _timed(batched: BatchOutput, url: str, rows: Sequence[PromptInput], count: int) -> StudentOutput:
    picked = evenly_spaced(len(rows), count)
    singly, latencies = time_served(url, [rows[at] for at in picked])
    otherwise = sum(normalise(text) != normalise(batched.texts[at]) for text, at in zip(singly, picked, strict=True))
    return StudentOutput(*batched, latencies, otherwise, machine_name())


def _in_batches(name: str, folder: Path, rows: Sequence[PromptInput], batch: int) -> BatchOutput:
    """Prompts of like length share a batch; the model is let go of, as a served one needs its place."""
    student = Student.load(folder)
    prompts = [student.render(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda at: len(prompts[at]))
    written: dict[int, GeneratedRewrite] = {}
    seconds = 0.0
    with progress(f"evaluate {name}", len(rows)) as tick:
        for start in range(0, len(rows), batch):
            together = order[start : start + batch]
            written |= zip(together, student.write_texts([prompts[at] for at in together]), strict=True)
            seconds += written[together[0]].seconds
            for _ in together:
                tick()
    del student
    _free_gpu()
    in_order = [written[at] for at in range(len(rows))]
    return BatchOutput([rewrite.text for rewrite in in_order], sum(rewrite.cut for rewrite in in_order), seconds)


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _free_gpu() -> None:
    """Give the memory of a model that is gone back to the GPU: torch keeps it, and a served one finds none free."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()


def ready_seconds(folder: Path) -> float:
    """How long a server of this model may take to start: 65 GB of weights take minutes to read."""
    return READY_SECONDS + 2 * sum(path.stat().st_size for path in folder.glob("*.safetensors")) / READ_BYTES_A_SECOND


@contextmanager
def rewriter_server(folder: Path) -> Iterator[Callable[[], str]]:
    """The server that production runs, for as long as the block lasts; the function waits for its URL."""
    with TemporaryDirectory(prefix="qinglan-") as log:
        arguments = ["--model", str(folder.resolve()), "--port", "0"]
        with start_service("serving.rewriter", arguments, Path(log) / "rewriter.log", ready_seconds(folder)) as url:
            yield url


def evenly_spaced(rows: int, count: int) -> list[int]:
    """So many places, evenly over all rows."""
    count = min(rows, count)
    return [at * rows // count for at in range(count)]


def time_served(url: str, rows: Sequence[PromptInput]) -> tuple[list[str], list[float]]:
    """Single rewrites as a user of the service waits for them; the first one warms up and does not count."""
    import httpx

    texts, times = [], []
    with httpx.Client(base_url=url, timeout=SERVED_SECONDS, trust_env=False) as client:
        for number, row in enumerate([*rows[:1], *rows]):
            started = time.perf_counter()
            try:
                response = client.post(SERVED_PATH, json={"instances": [_instance(row)]})
                response.raise_for_status()
                text = str(response.json()["predictions"][0]["rewritten_query"])
            except (httpx.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
                raise OutageError(
                    f"Rewriter {url}{SERVED_PATH}: no rewrite ({error}). Start it, or leave out `rewriter_urls`."
                ) from error
            if number:
                texts.append(text)
                times.append(time.perf_counter() - started)
    return texts, times


def _instance(row: PromptInput) -> dict[str, str]:
    return {
        "query": row.question, "user_profile": row.user_profile, "history_summary": row.history_summary,
        "tenant_id": row.tenant_id,
    }  # fmt: skip


def machine_name() -> str:
    """The machine that the students ran on."""
    import os

    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    threads: Any = torch.get_num_threads()
    return f"CPU, {threads} of {os.cpu_count()} cores"
