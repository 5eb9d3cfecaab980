"""The plan's own reward loop against ours: same episodes, same judgements, same stand-ins. `make bench-reward`

Batches of 64 episodes, 200 ms a judgement and 50 ms a retrieval; ours keeps to 10 judgements and 20 retrievals at
once. The bound is what these limits allow at best: judgements and retrievals may run side by side. Then what
sampling the judge and the caches save, in an epoch of its own.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.plan_reward import Rollout, Trainer
from benchmarks.report import report
from benchmarks.standin import serve, started
from pipelines.execute.rundir import write_json
from qinglan.llm.client import GatewayClient
from qinglan.processes.services import run_service
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import TrainingPrompt
from qinglan.reward.scorer import Scorer
from qinglan.rows.rows import Hit, Retrieval

BATCH = 64
JUDGE_SECONDS, RAG_SECONDS = 0.2, 0.05
JUDGE_AT_ONCE, RAG_AT_ONCE = 10, 20
BOUND = max(2 * BATCH * JUDGE_SECONDS / JUDGE_AT_ONCE, BATCH * RAG_SECONDS / RAG_AT_ONCE)
PRICE = {"input": 1.25, "cached_input": 0.125, "output": 10.0, "as_of": "2025-08-07"}
SNAPSHOT = "0" * 64
TARGET = 1.15

Batch = Sequence[Rollout]


class Calls(NamedTuple):
    """Calls that were paid for or sent to the RAG service."""

    judgements: int
    retrievals: int


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=["judge", "rag"], help="be one of the stand-ins")
    options = parser.parse_args()
    if options.serve:
        serve(*((judge, JUDGE_SECONDS) if options.serve == "judge" else (rag, RAG_SECONDS)))
    else:
        compare(options.rounds)


def compare(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, stand_ins(Path(folder)) as (judge_url, rag_url, gateway_url):
        [plan_seconds] = asyncio.run(timed(Trainer(judge_url + "/v1", rag_url, "judge").rewards, [batch("theirs")]))
        every, sampled = (RewardConfig(judge_share=share, control_pair_share=0.0) for share in (1.0, 0.3))
        seconds = statistics.median(time_ours(gateway_url, every, [batch(f"r{n}") for n in range(rounds)]))
        before = asyncio.run(calls(gateway_url))
        [again] = time_ours(gateway_url, sampled, [batch("r0", epoch=1)])
        after = asyncio.run(calls(gateway_url))
    saved = Calls(after.judgements - before.judgements, after.retrievals - before.retrievals)
    print(f"plan: {BATCH / plan_seconds:6.1f} episodes a second ({plan_seconds:.2f} s a batch of {BATCH})")
    print(f"ours: {BATCH / seconds:6.1f} episodes a second ({seconds:.2f} s); bound by the limits {BOUND:.2f} s")
    print(f"a second epoch, judge sampled at .3: {BATCH / again:.1f} episodes a second ({again:.2f} s)")
    print(f"    with {saved.judgements} judgements for {2 * BATCH}, {saved.retrievals} retrievals for {2 * BATCH}")
    report(
        "reward", plan_seconds / seconds, 1.0, seconds / BOUND <= TARGET, of_bound=round(seconds / BOUND, 3),
        of_bound_target=TARGET,
        plan_episodes_a_second=round(BATCH / plan_seconds, 2), ours_episodes_a_second=round(BATCH / seconds, 2),
        cached_and_sampled=round(BATCH / again, 2), judgements=saved.judgements, retrievals=saved.retrievals,
    )  # fmt: skip


def batch(name: str, epoch: int = 0) -> Batch:
    """Episodes of prompts that no other name shares; another epoch has the same prompts and other rewrites."""
    return [Rollout(_prompt(f"{name}-{number}"), f"虾青素 {name}{number} 用量 {epoch}") for number in range(BATCH)]


def _prompt(id: str) -> TrainingPrompt:
    outcome = Retrieval(query=id, hits=(Hit(id="k1", reranker_score=0.8),), top1_score=0.8, count=1)
    return TrainingPrompt(
        id=id, tenant_id="fivedoctors", question=f"{id} 一天吃几次", need=f"虾青素{id}一天吃几次", gold=("k1",),
        teacher_rewrite=f"虾青素{id} 每日服用频次", history_summary="用户在咨询虾青素软胶囊",
        teacher_retrieval=outcome, plain_retrieval=outcome, scored_against="need", retrieved_with=RetrievalConfig(),
    )  # fmt: skip


def time_ours(gateway_url: str, config: RewardConfig, batches: Sequence[Batch]) -> list[float]:
    """One worker's seconds for each batch; like a worker of a training, it keeps its connections."""

    async def run() -> list[float]:
        async with Scorer(gateway_url, config) as scorer:

            async def rewards(episodes: Batch) -> Any:
                return await asyncio.gather(*(scorer.score(*episode) for episode in episodes))

            return await timed(rewards, batches)

    return asyncio.run(run())


async def timed(rewards: Callable[[Batch], Awaitable[Any]], batches: Sequence[Batch]) -> list[float]:
    seconds = []
    for episodes in batches:
        started_at = time.monotonic()
        await rewards(episodes)
        seconds.append(time.monotonic() - started_at)
    return seconds


async def calls(gateway_url: str) -> Calls:
    async with GatewayClient(gateway_url, "benchmark") as gateway:
        outcome = await gateway.report()
    return Calls(int(outcome["calls"]), int(outcome["retrieval_misses"]))


@contextmanager
def stand_ins(root: Path) -> Iterator[tuple[str, str, str]]:
    with ExitStack() as stack:
        judge_url, rag_url = (
            stack.enter_context(started("benchmarks.reward", "--serve", name)) for name in ("judge", "rag")
        )
        model = {"base_url": judge_url + "/v1", "model": "judge", "price": PRICE}
        settings = {
            "teacher": model, "judge": model, "limits": {"concurrency": JUDGE_AT_ONCE},
            "rag": {"base_url": rag_url, "concurrency": RAG_AT_ONCE},
        }  # fmt: skip
        write_json(root / "gateway.json", settings)
        arguments = ["--config", str(root / "gateway.json"), "--journal", str(root / "journal.sqlite")]
        arguments += ["--retrieval-cache", str(root / "retrievals.sqlite"), "--port", "0"]
        yield judge_url, rag_url, stack.enter_context(run_service("serving.gateway", arguments, root / "gateway.log"))


def judge(path: str, body: bytes) -> dict[str, Any]:
    scores = {"意图保留": 4, "自足": 4, "无编造": 4, "简洁": 4, "综合得分": 4, "评分理由": "可以。"}
    message = {"role": "assistant", "content": orjson.dumps(scores).decode()}
    return {
        "id": "c", "object": "chat.completion", "created": 0, "model": "judge",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240},
    }  # fmt: skip


def rag(path: str, body: bytes) -> dict[str, Any]:
    if path == "/api/knowledge_bases":
        base = {"tenant_id": "fivedoctors", "kb_name": "default", "snapshot": SNAPSHOT, "passages": 10}
        return {"knowledge_bases": [base]}
    recall = [
        {"id": f"k{n}", "content": f"第{n}段" + "内容" * 60, "reranker_score": 0.9 - n / 20, "metadata": {}}
        for n in range(10)
    ]
    data = {
        "rewritten_query": orjson.loads(body)["rewritten_query"], "recall": recall, "scored_against": "need",
        "snapshot": SNAPSHOT,
    }  # fmt: skip
    return {"code": 200, "msg": "success", "data": data}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
