"""The students at work: every test question rewritten, and a sample timed one by one."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import OutageError
from qinglan.progress import progress
from qinglan.prompts import Asked
from qinglan.rewriter import Student
from qinglan.text import normalise

SERVED_PATH = "/v1/models/rewriter:predict"
SERVED_SECONDS = 60.0


class Writing(NamedTuple):
    """One student's rewrites, in the order of the questions, and what they took."""

    texts: list[str]
    cut: int
    """Rewrites that reached the limit without an end."""

    seconds: float
    """For all of them in batches."""

    latencies: list[float]
    """Seconds of single rewrites, one by one."""

    served: bool
    """Timed under the serving code, over HTTP."""

    otherwise: int
    """Timed rewrites that read otherwise than the batch's: padding and rounding, or another model is served."""

    machine: str


def rewrite_all(name: str, folder: Path, rows: Sequence[Asked], batch: int, timed: int, url: str = "") -> Writing:
    """Load a student, let it rewrite every row, time some, and let go of it."""
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
    picked = spread(len(rows), timed)
    sample = [rows[at] for at in picked]
    singly, latencies = time_served(url, sample) if url else time_here(student, sample)
    otherwise = sum(normalise(one) != normalise(texts[at]) for one, at in zip(singly, picked, strict=True))
    return Writing(texts, cut, seconds, latencies, bool(url), otherwise, machine())


def spread(rows: int, wanted: int) -> list[int]:
    """So many places, evenly over all rows."""
    wanted = min(rows, wanted)
    return [at * rows // wanted for at in range(wanted)]


def time_here(student: Student, rows: Sequence[Asked]) -> tuple[list[str], list[float]]:
    """Single rewrites in this process; the first one warms up and does not count."""
    student.write(rows[:1])
    texts, times = [], []
    for row in rows:
        started = time.perf_counter()
        texts.append(student.write([row])[0].text)
        times.append(time.perf_counter() - started)
    return texts, times


def time_served(url: str, rows: Sequence[Asked]) -> tuple[list[str], list[float]]:
    """Single rewrites as a user of the service waits for them."""
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
                    f"Rewriter {url}{SERVED_PATH}: no rewrite ({error}). Start it, or leave `rewriter_urls` out."
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
