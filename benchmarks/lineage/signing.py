"""Sign and verify a model with OMS, beside hashing the same bytes with hashlib alone; in turns, on warm files."""

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qinglan.lineage.signing.keys import make_key

FILES = 4
MEGABYTE = 1 << 20


def measure(megabytes: int, rounds: int) -> dict[str, Any]:
    """Seconds of each, and what signing and verifying take of the hashing; nothing where the library is missing."""
    if find_spec("model_signing") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_model(place / "model", megabytes)
        public = place / "public.pem"
        public.write_text(make_key(place / "private.pem"))
        work = {"hash": lambda: hash_all(place / "model"), **oms(place)}
        times: dict[str, list[float]] = {what: [] for what in work}
        for _ in range(rounds + 1):
            for what, run in work.items():
                times[what].append(seconds(run))
    medians = {what: statistics.median(all_of[1:]) for what, all_of in times.items()}
    ratios = {f"{what}_ratio": round(medians[what] / medians["hash"], 3) for what in ("sign", "verify")}
    return {"megabytes": megabytes, **{f"{what}_s": round(part, 3) for what, part in medians.items()}, **ratios}


def write_model(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    block = os.urandom(MEGABYTE)
    for number in range(FILES):
        with (folder / f"model-{number}.safetensors").open("wb") as file:
            for _ in range(megabytes // FILES):
                file.write(block)


def hash_all(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def oms(place: Path) -> dict[str, Callable[[], object]]:
    """The library with a release's settings: an EC key, a digest for each file, nothing ignored."""
    model, signature = place / "model", place / "model.sig"
    signing, verifying, hashing = (
        import_module(f"model_signing.{part}") for part in ("signing", "verifying", "hashing")
    )

    def settings() -> Any:
        return hashing.Config().set_ignored_paths(paths=[], ignore_git_paths=False).use_file_serialization()

    def sign() -> object:
        config = signing.Config().use_elliptic_key_signer(private_key=place / "private.pem")
        return config.set_hashing_config(settings()).sign(model, signature)

    def verify() -> object:
        config = verifying.Config().use_elliptic_key_verifier(public_key=place / "public.pem")
        return config.set_hashing_config(settings()).verify(model, signature)

    return {"sign": sign, "verify": verify}


def seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
