"""python -m standins.company_rag --kb fivedoctors=kb.jsonl      prints {"company_rag": "http://127.0.0.1:8000"}"""

import argparse
import asyncio
import sys
from pathlib import Path

import uvloop

from qinglan.errors import ConfigError, QinglanError
from qinglan.rag.lexical.index import Index, build_index
from qinglan.terminal import say_error
from serving.http_server import listen, log_to_stderr, serve_app
from standins.company_rag.app import CompanyRag, create_app
from standins.company_rag.behaviour import Behaviour


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m standins.company_rag", description="The stand-in for a company's own RAG service."
    )
    parser.add_argument("--kb", required=True, action="append", metavar="TENANT=PATH")
    parser.add_argument("--index-root", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    usual = Behaviour()
    for name in Behaviour.model_fields:
        default = getattr(usual, name)
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=default)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    arguments = parser.parse_args()
    try:
        values = {name: getattr(arguments, name) for name in Behaviour.model_fields}
        behaviour = Behaviour.parse(values, "stand-in RAG service")
        serve(CompanyRag(open_indexes(arguments.kb, arguments.index_root), behaviour), arguments.host, arguments.port)
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def open_indexes(bases: list[str], root: Path) -> dict[str, Index]:
    indexes = {}
    for base in bases:
        tenant, equals, path = base.partition("=")
        if not (equals and path):
            raise ConfigError(f"--kb {base}: write TENANT=PATH.")
        indexes[tenant] = Index.open(build_index(Path(path), root, tenant))
    return indexes


def serve(service: CompanyRag, host: str, port: int) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the address to configure."""
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("company_rag", create_app(service), listen(host, port)))


if __name__ == "__main__":
    main()
