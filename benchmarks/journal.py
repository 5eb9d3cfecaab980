"""Cost of the journal for a call, and a test that it keeps its promises when processes are killed.

python -m benchmarks.journal --calls 400 --kills 200

Overhead: the gateway with its journal (SQLite, WAL, an fsync before and after each call) against the same gateway
with a journal that forgets; same stand-in, same client. Kills: a stage asks for its rows through a gateway, and
either of the two is killed -9 at random moments until the stage has written its file.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from benchmarks.report import report
from qinglan.files.files import atomic_write, sha256_file
from qinglan.llm.client import GatewayClient
from qinglan.llm.config import GatewayConfig
from qinglan.llm.paid.journal_reader import read_answers, read_report
from qinglan.llm.providers.prices import Usage
from qinglan.processes.services import free_port
from serving.gateway import server
from standins.teacher.app import create_app, prompt_digest
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, GatewayProcess, gateway_config, running

TARGET_RATIO = 1.10
ROUNDS = 3
ROWS = 200
SHARED = 10
"""Distance of rows that ask what the first one asks."""


class Forgetful:
    """A journal's methods without a journal."""

    path = Path("none")

    def __init__(self, path: Path) -> None:
        pass

    def close(self) -> None: ...

    def spent(self) -> float:
        return 0.0

    def reserved(self) -> float:
        return 0.0

    def read(self, query: str, values: Any = ()) -> list[Any]:
        return [(0,)] if "max(id)" in query else []

    def answer(self, key: str) -> None: ...

    async def sent(self, call: Any, entry: Any, reserved: float) -> int:
        return 0

    async def answered(self, attempt: int, key: str, response: bytes, usage: Usage, cost: float) -> None: ...


class ForgetfulGateway(GatewayProcess):
    module = "benchmarks.journal"


class Measured(NamedTuple):
    seconds: float
    cpu: float


def main() -> None:
    """The benchmark; its children are this module too, started with words of their own."""
    if sys.argv[1:2] == ["--config"]:
        forgetful_gateway()
    elif sys.argv[1:2] == ["stage"]:
        asyncio.run(stage(sys.argv[2], Path(sys.argv[3])))
    else:
        run_benchmark()


def run_benchmark() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--latency", type=float, default=0.2, help="the stand-in's, in seconds")
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    overhead = measure_overhead(options.calls, options.latency)
    kills = kill_many(options.kills)
    ok = overhead["ratio"] <= TARGET_RATIO and not any(kills[name] for name in ("lost", "exported_twice", "unnamed"))
    report("journal", overhead.pop("ratio"), TARGET_RATIO, ok, **overhead, kills=kills)


def forgetful_gateway() -> None:
    from serving.gateway.__main__ import main as serve

    server.Journal = Forgetful  # type: ignore
    serve()


def measure_overhead(calls: int, latency: float) -> dict[str, Any]:
    """Rounds of both gateways in turn, at the stand-in's latency and, for the cost itself, without any."""
    figures: dict[str, Any] = {}
    for name, seconds in (("", latency), ("_without_latency", 0.0)):
        with running(create_app(EchoBrain(), Behaviour(latency=seconds))) as teacher:
            config = gateway_config(teacher, limits={"requests_per_minute": 10**6, "tokens_per_minute": 10**9})
            plain = [measure(ForgetfulGateway, config, calls) for _ in range(ROUNDS)]
            measurements = [measure(GatewayProcess, config, calls) for _ in range(ROUNDS)]
        with_journal, without = (statistics.median(m.seconds for m in each) for each in (measurements, plain))
        figures |= {
            f"ratio{name}": round(with_journal / without, 3),
            f"ms_per_call{name}": round(with_journal / calls * 1000, 3),
            f"ms_per_call_forgetful{name}": round(without / calls * 1000, 3),
        }
        figures["client_cpu_ms_per_call"] = round(statistics.median(m.cpu for m in measurements) / calls * 1000, 3)
        print(
            f"{calls} calls, stand-in at {seconds:g} s: {without:.2f} s without a journal, {with_journal:.2f} s with"
        )
    return figures


def measure(kind: type[GatewayProcess], config: GatewayConfig, calls: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        gateway = kind(config, Path(folder))
        try:
            return asyncio.run(ask_all(gateway.url(), calls))
        finally:
            gateway.stop()


async def ask_all(url: str, calls: int) -> Measured:
    async with GatewayClient(url, "bench") as client:
        await client.ask("teacher", messages("warm"), row="warm")
        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client.ask("teacher", messages(str(n)), row=str(n)) for n in range(calls)))
        return Measured(time.perf_counter() - started, time.process_time() - cpu)


def question(row: str) -> list[Any]:
    """The question of a row; some rows ask the same."""
    return messages("shared" if int(row) % SHARED == 0 else row)


def messages(text: str) -> list[Any]:
    return [{"role": "system", "content": "改写这个查询。" * 20}, {"role": "user", "content": f"问题 {text}"}]


async def stage(url: str, output: Path) -> None:
    """A stage in small: ask for every row, write the file whole, tell the journal."""
    async with GatewayClient(url, "stage") as client:
        rows = [str(n) for n in range(ROWS)]
        answers = await asyncio.gather(*(client.ask("teacher", question(row), row=row) for row in rows))
        with atomic_write(output) as partial, partial.open("wb") as file:
            for row, answer in zip(rows, answers, strict=True):
                file.write(orjson.dumps({"row": row, "text": answer.text, "call": answer.call}) + b"\n")
        await client.exported(sha256_file(output))


def kill_many(kills: int) -> dict[str, int]:
    """Run with kills until there were enough; returns the faults of all runs, of which there should be none."""
    luck, totals = random.Random(0), dict.fromkeys(("done", "runs", "lost", "exported_twice", "unnamed", "named"), 0)
    while totals["done"] < kills:
        behaviour = Behaviour(latency=0.03, jitter=0.03)
        with running(create_app(EchoBrain(), behaviour)) as teacher, tempfile.TemporaryDirectory() as folder:
            done = run_with_kills(teacher, Path(folder), luck, kills - totals["done"])
            wrong = check(teacher, Path(folder))
        for name, count in {**wrong, "done": done, "runs": 1}.items():
            totals[name] += count
        print(f"run {totals['runs']}: {done} kills, {totals['done']} in all, {wrong}", flush=True)
    return totals


def run_with_kills(teacher: str, folder: Path, luck: random.Random, most: int) -> int:
    """Start gateway and stage; kill either, start it again, until the stage ends by itself."""
    config, port, kills = gateway_config(teacher, limits={"concurrency": 4}), free_port(), 0
    gateway, worker = GatewayProcess(config, folder, port=port), start_stage(port, folder)
    url = gateway.url()
    while worker.poll() is None:
        if kills >= most:
            worker.wait()
            break
        try:
            worker.wait(luck.uniform(0.05, 0.9))
            break
        except subprocess.TimeoutExpired:
            kills += 1
        if luck.random() < 0.3:
            worker.kill()
            worker.wait()
            worker = start_stage(port, folder)
        else:
            gateway.kill()
            gateway = GatewayProcess(config, folder, port=port)
            assert gateway.url() == url
    gateway.stop()
    if worker.returncode != 0:
        raise SystemExit(f"the stage ended with {worker.returncode}: {(folder / 'gateway.log').read_text()}")
    return kills


def start_stage(port: int, folder: Path) -> "subprocess.Popen[bytes]":
    url = f"http://127.0.0.1:{port}"
    return subprocess.Popen([sys.executable, "-m", "benchmarks.journal", "stage", url, str(folder / "out.jsonl")])


def check(teacher: str, folder: Path) -> dict[str, int]:
    """Rows lost, rows or answers exported twice, prompts billed twice whose rows the report does not name."""
    rows = [orjson.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    right = {row["row"]: row["text"] for row in rows if row["text"] == f"回声 {question(row['row'])[-1]['content']}"}
    figures = read_report(folder / "journal.sqlite")
    calls = {str(row["call"]) for row in rows}
    exported = [answer.call for answer in read_answers(folder / "journal.sqlite")]
    entries = sum(item["answers"] for item in figures["exports"])
    billed = httpx.get(f"{teacher}/stats", trust_env=False).json()["billed_by_prompt"]
    named = {item.removeprefix("stage/") for item in figures["possibly_billed"]}
    named_prompts = {prompt_digest("echo", question(row)) for row in named}
    return {
        "lost": ROWS - len(right) + len(calls - set(exported)),
        "exported_twice": len(rows) - len(right) + len(exported) - len(calls) + entries - ROWS,
        "unnamed": sum(times > 1 and prompt not in named_prompts for prompt, times in billed.items()),
        "named": len(named),
    }


if __name__ == "__main__":
    main()
