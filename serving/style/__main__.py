"""python -m serving.style --model runs/style/files/style_model --port 0"""

import argparse
import asyncio
import sys
from pathlib import Path

from qinglan.terminal import program_name
from serving.programs import exit_on_error


def main() -> None:
    arguments = parser().parse_args()
    # kserve parses the command line when it is imported.
    # https://github.com/kserve/kserve/blob/master/python/kserve/kserve/model_server.py
    sys.argv = sys.argv[:1]
    with exit_on_error():
        serve(arguments)


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    out = argparse.ArgumentParser(prog=program_name("serving.style"), description="The style model.")
    out.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="the model to serve")
    out.add_argument("--engine", choices=["torch", "onnx"], default="torch", help="onnx: int8, for a CPU")
    out.add_argument("--name", default="style", help="in the paths: /v1/models/NAME:predict, /v2/models/NAME/infer")
    out.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one")
    out.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    out.add_argument("--queue", type=int, default=1024, metavar="TEXTS", help="waiting; more are refused with 429")
    out.add_argument("--trust", type=Path, metavar="FILE", help="whose signature the model's release must bear")
    return out


def serve(arguments: argparse.Namespace) -> None:
    from serving.http_server import listen, log_to_stderr, serve_app
    from serving.kserve_app import require_model_folder
    from serving.style.app import create_app
    from serving.style.model import KServeStyleModel

    log_to_stderr()
    folder = require_model_folder(arguments.model)
    model = KServeStyleModel(arguments.name, folder, arguments.engine, arguments.queue, arguments.trust)
    app = create_app(model)  # loaded, then reachable
    asyncio.run(serve_app("style", app, listen(arguments.host, arguments.port)))


if __name__ == "__main__":
    main()
