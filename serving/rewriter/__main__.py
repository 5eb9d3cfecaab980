"""python -m serving.rewriter --model runs/fivedoctors-demo/files/rl_model --port 0"""

import argparse
import asyncio
import sys
from pathlib import Path

from qinglan.errors import QinglanError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.rewriter", description="The trained rewriter.")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--name", default="rewriter", help="in the path: /v1/models/NAME:predict")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    given = parser.parse_args()
    sys.argv = sys.argv[:1]  # kserve reads the command line when it is imported
    try:
        serve(given.model, given.name, given.host, given.port)
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def serve(folder: Path, name: str, host: str, port: int) -> None:
    from serving.kserving import create_app, existing
    from serving.listening import listen, log_to_stderr, serve_app
    from serving.rewriter.model import Rewriter

    log_to_stderr()
    app = create_app(Rewriter(name, existing(folder)))  # loaded before anyone can connect
    asyncio.run(serve_app("rewriter", app, listen(host, port)))


if __name__ == "__main__":
    main()
