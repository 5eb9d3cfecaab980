"""Open the parts of a run's gateway, serve it, and close it once all paid answers are on disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop
from fastapi import FastAPI

from qinglan.llm.batch.journal import refuse_open_batches
from qinglan.llm.budget import Budget
from qinglan.llm.config import GatewayConfig, check_currency
from qinglan.llm.paid.journal import Journal
from qinglan.llm.providers.upstream import Upstream
from serving.gateway.app import create_app
from serving.gateway.cache import RetrievalCache
from serving.gateway.metrics import Metrics
from serving.gateway.mlflow_forward import MlflowForward
from serving.gateway.paid_calls import PaidCalls
from serving.gateway.retrieval_client import RetrievalClient
from serving.gateway.trainings import Trainings
from serving.http_server import listen, log_to_stderr, serve_app


def serve(config: GatewayConfig, journal: Path, retrieval_cache: Path, host: str, port: int) -> None:
    """Serve until SIGTERM; calls that were sent by then are awaited and journaled."""

    async def run() -> None:
        async with open_gateway(config, journal, retrieval_cache) as (app, paid):
            await serve_app("gateway", app, listen(host, port), stopping=paid.stop)

    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@asynccontextmanager
async def open_gateway(
    config: GatewayConfig, journal_path: Path, cache_path: Path
) -> AsyncIterator[tuple[FastAPI, PaidCalls]]:
    """Open all parts of one gateway. Wrong settings raise an error before any money is spent."""
    check_currency(config)
    async with AsyncExitStack() as stack:
        models = config.models()
        upstreams: dict[str, Upstream] = {
            role: Upstream(model, role, config.limits.timeout_seconds) for role, model in models.items()
        }
        for upstream in upstreams.values():
            stack.push_async_callback(upstream.aclose)
        journal = Journal(journal_path)
        stack.callback(journal.close)
        await refuse_open_batches(journal)
        budget = Budget(config.budget, journal.spent())
        mlflow = MlflowForward(config.mlflow)
        stack.push_async_callback(mlflow.aclose)
        trainings = Trainings()
        metrics = Metrics(budget, trainings)
        cache = RetrievalCache(cache_path)
        stack.callback(cache.close)
        retrievals = RetrievalClient(config.rag, cache, metrics)
        stack.push_async_callback(retrievals.aclose)
        paid = PaidCalls(config, journal, budget, upstreams, metrics)
        stack.push_async_callback(paid.drain)
        yield create_app(paid, retrievals, journal, metrics, models, trainings, mlflow), paid
