"""python -m serving.rollout.shadow --payloads s3://qinglan/payloads --rag http://rag:8000 --service rewriter"""

import argparse
import asyncio
import contextlib
import sys
from typing import Any

from qinglan.errors import ConfigError, QinglanError
from qinglan.terminal import say_error
from serving.rollout.shadow.config import ShadowConfig

PAIR = {"canary": "url", "canary_version": "canary", "stable_version": "stable"}


def main() -> None:
    try:
        serve(read_options(vars(parser().parse_args())))
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def parser() -> argparse.ArgumentParser:
    """What is not given is the configuration's default."""
    out = argparse.ArgumentParser(
        prog="python -m serving.rollout.shadow", argument_default=argparse.SUPPRESS,
        description="Compares a canary's rewrites with the stable model's, on live questions that nobody waits for.",
    )  # fmt: skip
    out.add_argument("--payloads", required=True, metavar="STORE", help="of the rewriter's --payload-log, with texts")
    out.add_argument("--rag", required=True, metavar="URL", help="searches both rewrites")
    out.add_argument("--kb-name", metavar="NAME")
    out.add_argument("--top-k", type=int)
    out.add_argument("--score-threshold", type=float, metavar="0..1")
    out.add_argument("--judge", metavar="URL", help="a gateway, whose judge is asked in both orders instead")
    out.add_argument("--service", metavar="NAME", help="the InferenceService whose rollout is followed")
    out.add_argument("--namespace")
    out.add_argument("--ingress", metavar="URL", help="the cluster's gateway; the tag route's host goes in a header")
    out.add_argument("--canary", metavar="URL", help="without a cluster; with the next two")
    out.add_argument("--canary-version", metavar="VERSION")
    out.add_argument("--stable-version", metavar="VERSION")
    out.add_argument("--model", metavar="NAME", help="in the canary's path")
    out.add_argument("--share", type=float, metavar="0..1", help="of the questions in the log")
    out.add_argument("--deadline-seconds", type=float, metavar="S")
    out.add_argument("--host")
    out.add_argument("--port", type=int, help="0 takes a free one")
    return out


def read_options(given: dict[str, Any]) -> ShadowConfig:
    pair = {PAIR[name]: given.pop(name) for name in PAIR if name in given}
    if pair and len(pair) < len(PAIR):
        raise ConfigError("--canary, --canary-version, --stable-version: all three, or none.")
    return ShadowConfig.parse({**given, **({"pair": pair} if pair else {})}, "serving.rollout.shadow")


def serve(config: ShadowConfig) -> None:
    from qinglan.store import open_store
    from serving.http_server import listen, log_to_stderr, serve_app
    from serving.rollout.shadow.app import create_app
    from serving.rollout.shadow.comparer import create_comparer
    from serving.rollout.shadow.metrics import Metrics
    from serving.rollout.shadow.pair_source import create_pair_source
    from serving.rollout.shadow.payload_log import PayloadLogReader
    from serving.rollout.shadow.worker import ShadowWorker

    log_to_stderr()
    metrics, whom = Metrics(), create_pair_source(config)

    async def served() -> None:
        shadow = ShadowWorker(
            config, PayloadLogReader(open_store(config.payloads)), whom, create_comparer(config), metrics
        )
        working = asyncio.create_task(shadow.work())
        await serve_app("rollout.shadow", create_app(metrics), listen(config.host, config.port))
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await shadow.aclose()

    asyncio.run(served())


if __name__ == "__main__":
    main()
