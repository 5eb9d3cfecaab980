"""The students at work: every test question rewritten, and a sample timed one by one under the serving code."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from qinglan.errors import OutageError
from qinglan.progress import progress
from qinglan.prompts import Asked
from qinglan.rewriter import Student
from qinglan.services import READY_SECONDS, service
from qinglan.text import normalise

SERVED_PATH = "/v1/models/rewriter:predict"
SERVED_SECONDS = 60.0
READ_BYTES_A_SECOND = 50e6
"""The slowest volume that a server is waited for: it reads its weights twice, for their digest and to load them."""


class Writing(NamedTuple):
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


def rewrite_all(name: str, folder: Path, rows: Sequence[Asked], batch: int, timed: int, url: str = "") -> Writing:
    """Let a student rewrite every row, then time some as its users wait: where it is served, or served for this."""
    texts, cut, seconds = _in_batches(name, folder, rows, batch)
    _free_gpu()
    picked = spread(len(rows), timed)
    with served(folder) if not url else nullcontext(url) as address:
        singly, latencies = time_served(address, [rows[at] for at in picked])
    otherwise = sum(normalise(one) != normalise(texts[at]) for one, at in zip(singly, picked, strict=True))
    return Writing(texts, cut, seconds, latencies, otherwise, machine())


def _in_batches(name: str, folder: Path, rows: Sequence[Asked], batch: int) -> tuple[list[str], int, float]:
    """Texts, how many were cut, and seconds; the model is let go of, as a served one needs its place."""
    student = Student.load(folder)
    texts, cut, seconds = [], 0, 0.0
    with progress(f"evaluate {name}", len(rows)) as tick:
        for start in range(0, len(rows), batch):
            written = student.write(rows[start : start + batch])
            texts += [one.text for one in written]
            cut += sum(one.cut for one in written)
            seconds += written[0].seconds
            for _ in written:
                tick()
    return texts, cut, seconds


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
def served(folder: Path) -> Iterator[str]:
    """The server that production runs, for as long as the block lasts."""
    with TemporaryDirectory(prefix="qinglan-") as log:
        arguments = ["--model", str(folder.resolve()), "--port", "0"]
        with service("rewriter", arguments, Path(log) / "rewriter.log", ready_seconds(folder)) as url:
            yield url


def spread(rows: int, wanted: int) -> list[int]:
    """So many places, evenly over all rows."""
    wanted = min(rows, wanted)
    return [at * rows // wanted for at in range(wanted)]


def time_served(url: str, rows: Sequence[Asked]) -> tuple[list[str], list[float]]:
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
                ) from None
            if number:
                texts.append(text)
                times.append(time.perf_counter() - started)
    return texts, times


def _instance(row: Asked) -> dict[str, str]:
    return {
        "query": row.question, "user_profile": row.user_profile, "history_summary": row.history_summary,
        "tenant_id": row.tenant_id,
    }  # fmt: skip


def machine() -> str:
    """What the students ran on."""
    import os

    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    threads: Any = torch.get_num_threads()
    return f"CPU, {threads} of {os.cpu_count()} cores"
