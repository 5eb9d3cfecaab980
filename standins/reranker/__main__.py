"""python -m standins.reranker --port 8200      prints {"reranker": "http://127.0.0.1:8200"}"""

import argparse
import asyncio
import sys

import uvloop

from qinglan.errors import QinglanError
from qinglan.terminal import say_error
from serving.http_server import listen, log_to_stderr, serve_app
from standins.reranker.app import FakeReranker, create_app
from standins.reranker.behaviour import FAULTS, Behaviour


def main() -> None:
    usual = Behaviour()
    parser = argparse.ArgumentParser(prog="python -m standins.reranker", description="The stand-in for rerankers.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8200, help="0 takes a free one")
    for name in Behaviour.model_fields:
        default = getattr(usual, name)
        description = f"one of: {', '.join(FAULTS)}" if name == "fault" else None
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=description)
    arguments = parser.parse_args()
    try:
        values = {name: getattr(arguments, name) for name in Behaviour.model_fields}
        serve(Behaviour.parse(values, "stand-in reranker"), arguments.host, arguments.port)
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def serve(behaviour: Behaviour, host: str, port: int) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the address to configure."""
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("reranker", create_app(FakeReranker(behaviour)), listen(host, port)))


if __name__ == "__main__":
    main()
