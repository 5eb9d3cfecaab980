"""python -m serving.gateway --config gateway.yaml --journal journal.sqlite --retrieval-cache retrievals.sqlite"""

import argparse
from pathlib import Path

from qinglan.config import load_yaml
from qinglan.llm.config import GatewayConfig
from qinglan.terminal import program_name
from serving.gateway.server import serve
from serving.programs import exit_on_error


def main() -> None:
    arguments = parser().parse_args()
    with exit_on_error():
        config = GatewayConfig.parse(load_yaml(arguments.config), str(arguments.config))
        serve(config, arguments.journal, arguments.retrieval_cache, arguments.host, arguments.port)


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    out = argparse.ArgumentParser(prog=program_name("serving.gateway"), description="A run's way to the paid API.")
    out.add_argument("--config", required=True, type=Path, help="the gateway's settings, YAML or JSON")
    out.add_argument("--journal", required=True, type=Path, help="paid answers, SQLite; made where it is not there")
    out.add_argument("--retrieval-cache", required=True, type=Path, help="answers of the RAG service, SQLite")
    out.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one")
    out.add_argument("--port", type=int, default=8200, help="0 takes a free one")
    return out


if __name__ == "__main__":
    main()
