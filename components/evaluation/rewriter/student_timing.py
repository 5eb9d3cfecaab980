"""A student's rewrites and its speed. Single rewrites are timed through the server that production runs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from qinglan.errors import OutageError
from qinglan.llm.host_allowlist import check_host
from qinglan.processes.services import READY_SECONDS, start_service
from qinglan.prompts import PromptInput
from qinglan.rewriter.model import GeneratedRewrite
from qinglan.text.text import normalise

SERVED_PATH = "/v1/models/rewriter:predict"
SERVED_SECONDS = 60.0
READ_BYTES_A_SECOND = 50e6
"""Slowest assumed speed of the volume with the weights, in bytes per second. A server reads its weights twice: for
their digest, and to load them."""


class StudentOutput(NamedTuple):
    """One student's rewrites, in the order of the questions, and their times."""

    texts: list[str]
    cut: int
    """Number of rewrites that were cut at the token limit."""

    seconds: float
    """Seconds for writing all rewrites in batches."""

    latencies: list[float] = []
    """Seconds of each rewrite in the timed sample, which is requested over HTTP one by one."""

    otherwise: int = 0
    """Number of timed rewrites that differ from the same row's rewrite in a batch, because of padding and rounding,
    or because another model is served."""

    machine: str = ""
    engine: str = "transformers"
    trimmed: int = 0
    """Number of prompts from which the oldest turns of a long history were left out."""

    @classmethod
    def of(cls, rewrites: Sequence[GeneratedRewrite], seconds: float, trimmed: int = 0) -> "StudentOutput":
        cut = sum(rewrite.cut for rewrite in rewrites)
        return cls([rewrite.text for rewrite in rewrites], cut, seconds, trimmed=trimmed)


def time_student(
    batched: StudentOutput, url: str, rows: Sequence[PromptInput], count: int, engine: str
) -> StudentOutput:
    """Time `count` rows, evenly spaced over all rows, on the student's server; return the output with these times."""
    picked = evenly_spaced(len(rows), count)
    singly, latencies = time_served(url, [rows[at] for at in picked])
    otherwise = sum(normalise(text) != normalise(batched.texts[at]) for text, at in zip(singly, picked, strict=True))
    return batched._replace(latencies=latencies, otherwise=otherwise, machine=machine_name(), engine=engine)


def ready_seconds(folder: Path) -> float:
    """Return the seconds to wait for the start of a server with this model; 65 GB of weights take minutes to read."""
    return READY_SECONDS + 2 * sum(path.stat().st_size for path in folder.glob("*.safetensors")) / READ_BYTES_A_SECOND


@contextmanager
def rewriter_server(folder: Path, *options: str) -> Iterator[Callable[[], str]]:
    """Run the production server until the block ends. Yields a function that waits for it and returns its URL."""
    with TemporaryDirectory(prefix="qinglan-") as log:
        arguments = ["--model", str(folder.resolve()), "--port", "0", *options]
        with start_service("serving.rewriter", arguments, Path(log) / "rewriter.log", ready_seconds(folder)) as url:
            yield url


def evenly_spaced(rows: int, count: int) -> list[int]:
    """Return the positions of `count` rows, evenly spaced over all rows."""
    # Not the first rows, because rows of the same tenant or conversation have similar lengths.
    count = min(rows, count)
    return [at * rows // count for at in range(count)]


def time_served(url: str, rows: Sequence[PromptInput]) -> tuple[list[str], list[float]]:
    """Request the rewrites one by one over HTTP; return the texts and their seconds. An additional first request
    warms the server up and is not counted."""
    import httpx2

    from qinglan.http.http_client import sync_client

    check_host(url, "evaluate.rewriter_urls")
    texts, times = [], []
    with sync_client(url, timeout=SERVED_SECONDS) as client:
        # The first row is sent twice: its first answer pays for caches and kernels that are compiled on first use.
        for number, row in enumerate([*rows[:1], *rows]):
            instance = {
                "query": row.question,
                "user_profile": row.user_profile,
                "history_summary": row.history_summary,
                "tenant_id": row.tenant_id,
            }
            started = time.perf_counter()
            try:
                response = client.post(SERVED_PATH, json={"instances": [instance]})
                response.raise_for_status()
                text = str(response.json()["predictions"][0]["rewritten_query"])
            except (httpx2.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
                raise OutageError(
                    f"Rewriter {url}{SERVED_PATH}: no rewrite ({error}). Start it, or leave out `rewriter_urls`."
                ) from error
            if number:
                texts.append(text)
                times.append(time.perf_counter() - started)
    return texts, times


def machine_name() -> str:
    import os

    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    threads: Any = torch.get_num_threads()
    return f"CPU, {threads} of {os.cpu_count()} cores"
