"""python -m serving.gateway --config gateway.yaml --journal journal.sqlite --retrieval-cache retrievals.sqlite"""

import argparse
import sys
from pathlib import Path

from qinglan.config import load_yaml
from qinglan.errors import QinglanError
from qinglan.llm.config import GatewayConfig
from qinglan.terminal import program_name, say_error
from serving.gateway.server import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog=program_name("serving.gateway"), description="A run's way to the paid API.")
    parser.add_argument("--config", required=True, type=Path, help="the gateway's settings, YAML or JSON")
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--retrieval-cache", required=True, type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8200, help="0 takes a free one")
    arguments = parser.parse_args()
    try:
        config = GatewayConfig.parse(load_yaml(arguments.config), str(arguments.config))
        serve(config, arguments.journal, arguments.retrieval_cache, arguments.host, arguments.port)
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
