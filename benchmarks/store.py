"""Bytes a second into and out of MinIO through our store, against raw calls of its client, side by side.

python -m benchmarks.store --large 4x96 --small 400x64 --rounds 3     (files x MiB, files x KiB)

The raw side is `fput_object` and `fget_object`, as many at once as ours, every large upload with as many parts at
once: it checks no digest of the whole, and publishes nothing. Both sides go to one MinIO in turn, each round the
other one first. The ratio is that of pushing large files, the median of the rounds'; `sha256` is what the same bytes
take to hash once, which ours does to know what it sends and what it has got.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import report
from qinglan.files.digests import digest
from qinglan.store import Store, open_store
from qinglan.store.backend import MIN_PART_SIZE
from qinglan.store.parallel import MAX_WORKERS

if TYPE_CHECKING:
    from minio import Minio

TARGET_RATIO = 1.2
BUCKET = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("--large", default="4x96", help="files x MiB")
    parser.add_argument("--small", default="400x64", help="files x KiB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"large": _sizes(options.large, 20), "small": _sizes(options.small, 10)}
        results = measured(Path(folder), kinds, options.rounds)
    ratio = max(results[f"{kind}_push"]["ratio"] for kind in kinds)
    report("store", ratio, TARGET_RATIO, ratio <= TARGET_RATIO, **results)


def _sizes(text: str, shift: int) -> tuple[int, int]:
    count, _, size = text.partition("x")
    return int(count), int(size) << shift


def measured(folder: Path, kinds: dict[str, tuple[int, int]], rounds: int) -> dict[str, Any]:
    """Each kind of files, each way, ours and raw in turn."""
    from tests.cluster.servers import minio

    (folder / "minio").mkdir()
    with minio(folder / "minio") as server:
        raw = raw_client(server)
        raw.make_bucket(BUCKET)
        results: dict[str, Any] = {}
        for kind, (count, size) in kinds.items():
            seconds: dict[str, list[float]] = {}
            for number in range(rounds):
                source = write_files(folder / f"{kind}-{number}", count, size, number)
                store = open_store(f"s3://{BUCKET}/ours-{kind}-{number}", server.environment)
                for direction, sides in ways(source, folder / "back", store, raw, f"raw-{kind}-{number}").items():
                    for side in sorted(sides, reverse=number % 2 == 1):
                        seconds.setdefault(f"{direction}_{side}", []).append(timed(sides[side]))
                shutil.rmtree(source)
            results |= figures(kind, count * size, seconds)
    return results


def ways(
    source: Path, back: Path, store: Store, raw: "Minio", prefix: str
) -> dict[str, dict[str, Callable[[], object]]]:
    """Times: both ways by both sides, and the hash that ours takes in each."""
    source_digest = digest(source)
    return {
        "push": {
            "ours": lambda: store.push(source, source_digest),
            "raw": lambda: raw_push(raw, source, prefix),
            "sha256": lambda: digest(source),
        },
        "pull": {
            "ours": lambda: store.pull(source_digest, back / "ours"),
            "raw": lambda: raw_pull(raw, prefix, back / "raw", sorted(path.name for path in source.iterdir())),
        },
    }


def raw_client(server: Any) -> "Minio":
    from minio import Minio

    return Minio(server.endpoint.removeprefix("http://"), server.key, server.secret, secure=False)


def raw_push(raw: "Minio", source: Path, prefix: str) -> None:
    """Files several at once; those of several parts one after another, their parts at once: as ours does."""

    def push(path: Path) -> None:
        raw.fput_object(
            BUCKET, f"{prefix}/{path.name}", str(path), part_size=MIN_PART_SIZE, num_parallel_uploads=MAX_WORKERS
        )

    files = sorted(source.iterdir())
    with ThreadPoolExecutor(1 if files[0].stat().st_size > MIN_PART_SIZE else MAX_WORKERS) as pool:
        list(pool.map(push, files))


def raw_pull(raw: "Minio", prefix: str, back: Path, names: list[str]) -> None:
    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        list(pool.map(lambda name: raw.fget_object(BUCKET, f"{prefix}/{name}", str(back / name)), names))


def write_files(folder: Path, count: int, size: int, seed: int) -> Path:
    """Other bytes each time, so that nothing is pushed that is there already."""
    folder.mkdir()
    luck = random.Random(seed)
    for number in range(count):
        (folder / f"file-{number:05}").write_bytes(luck.randbytes(size))
    return folder


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def figures(kind: str, size: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Figures of each way: bytes a second on both sides, and how much longer ours takes, round by round."""
    middle = {name: statistics.median(each) for name, each in seconds.items()}
    results: dict[str, Any] = {}
    for direction in ("push", "pull"):
        product, raw = middle[f"{direction}_ours"], middle[f"{direction}_raw"]
        pairs = zip(seconds[f"{direction}_ours"], seconds[f"{direction}_raw"], strict=True)
        ratios = [by_us / by_hand for by_us, by_hand in pairs]
        results[f"{kind}_{direction}"] = {
            "ratio": round(statistics.median(ratios), 3), "mb_per_second": round(size / product / 1e6, 1),
            "mb_per_second_raw": round(size / raw / 1e6, 1), "seconds": round(product, 2),
            "seconds_raw": round(raw, 2), "seconds_sha256": round(middle["push_sha256"], 2),
        }  # fmt: skip
        print(f"{kind} {direction}: {results[f'{kind}_{direction}']}", flush=True)
    return results


if __name__ == "__main__":
    main()
