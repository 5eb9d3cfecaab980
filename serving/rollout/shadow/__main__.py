"""python -m serving.rollout.shadow --payloads s3://qinglan/payloads --rag http://rag:8000 --service rewriter"""

import argparse
import asyncio
import contextlib
from typing import Any

from serving.programs import exit_on_error
from serving.rollout.shadow.config import ShadowConfig

RETRIEVAL = ("kb_name", "top_k", "score_threshold")


def main() -> None:
    with exit_on_error():
        serve(read_options(vars(parser().parse_args())))


def parser() -> argparse.ArgumentParser:
    """Parser of the command line. A missing option has the default of ShadowConfig."""
    options = argparse.ArgumentParser(
        prog="python -m serving.rollout.shadow",
        argument_default=argparse.SUPPRESS,
        description="Compares a canary's rewrites with the stable model's, on live questions that nobody waits for.",
    )
    options.add_argument(
        "--payloads", required=True, metavar="STORE", help="the store of the rewriter's --payload-log, with texts"
    )
    options.add_argument("--rag", required=True, metavar="URL", help="searches both rewrites")
    options.add_argument("--kb-name", metavar="NAME")
    options.add_argument("--top-k", type=int)
    options.add_argument("--score-threshold", type=float, metavar="0..1")
    options.add_argument("--judge", metavar="URL", help="a gateway, whose judge is asked in both orders instead")
    options.add_argument("--service", required=True, help="the InferenceService whose rollout is followed")
    options.add_argument("--namespace")
    options.add_argument(
        "--ingress", metavar="URL", help="the cluster's gateway; the tag route's host goes in a header"
    )
    options.add_argument("--model", metavar="NAME", help="in the canary's path")
    options.add_argument("--share", type=float, metavar="0..1", help="of the questions in the log")
    options.add_argument("--deadline-seconds", type=float, metavar="S")
    options.add_argument("--host")
    options.add_argument("--port", type=int, help="0 takes a free one")
    return options


def read_options(options: dict[str, Any]) -> ShadowConfig:
    retrieval = {name: options.pop(name) for name in RETRIEVAL if name in options}
    return ShadowConfig.parse({**options, "retrieval": retrieval}, "serving.rollout.shadow")


def serve(config: ShadowConfig) -> None:
    from starlette.responses import JSONResponse

    from qinglan.store import open_store
    from serving.http_server import listen, log_to_stderr, serve_app
    from serving.operator_pages import operator_app
    from serving.rollout.shadow.comparer import create_comparer
    from serving.rollout.shadow.metrics import Metrics
    from serving.rollout.shadow.pair_source import RolloutPairSource
    from serving.rollout.shadow.payload_log import PayloadLogReader
    from serving.rollout.shadow.worker import ShadowWorker

    log_to_stderr()
    metrics, pair_source = Metrics(), RolloutPairSource(config.service, config.namespace)
    pages = operator_app(metrics.registry, healthy=JSONResponse({"status": "ok"}))

    async def run() -> None:
        shadow = ShadowWorker(
            config, PayloadLogReader(open_store(config.payloads)), pair_source, create_comparer(config), metrics
        )
        working = asyncio.create_task(shadow.run_forever())
        await serve_app("rollout.shadow", pages, listen(config.host, config.port))
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await shadow.aclose()

    asyncio.run(run())


if __name__ == "__main__":
    main()
