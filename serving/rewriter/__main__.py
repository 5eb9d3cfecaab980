"""python -m serving.rewriter --model runs/fivedoctors-demo/files/rl_model --port 0"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from qinglan.errors import ConfigError
from qinglan.terminal import program_name
from serving.programs import exit_on_error
from serving.rewriter.config import ServerConfig


def main() -> None:
    options = vars(parser().parse_args())
    # kserve parses the command line when it is imported.
    # https://github.com/kserve/kserve/blob/master/python/kserve/kserve/model_server.py
    sys.argv = sys.argv[:1]
    with exit_on_error():
        serve(read_options(options))


def parser() -> argparse.ArgumentParser:
    """Parser of the command line; a missing option has the default of ServerConfig."""
    out = argparse.ArgumentParser(
        prog=program_name("serving.rewriter"), description="The trained rewriter.", argument_default=argparse.SUPPRESS
    )
    out.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="the model to serve")
    backend = "transformers (in this process), or a vLLM's http://host:port"
    out.add_argument("--backend", metavar="WHERE", help=backend)
    out.add_argument("--base", type=Path, metavar="FOLDER", help="of vLLM's base model: must be the adapter's own")
    out.add_argument("--name", help="in the paths: /v1/models/NAME:predict; at vLLM the adapter's")
    out.add_argument("--host", help="address to listen on; 0.0.0.0 is every one")
    out.add_argument("--port", type=int, help="0 takes a free one")
    out.add_argument("--queue", type=int, metavar="QUESTIONS", help="waiting; more are refused with 429")
    out.add_argument("--deadline-seconds", type=float, metavar="S", help="for a whole request")
    out.add_argument("--trust", type=Path, metavar="FILE", help="whose signature the model's release must bear")
    out.add_argument("--payload-log", metavar="STORE", help="a folder or s3://bucket/prefix for what was asked")
    out.add_argument("--payload-share", type=float, metavar="0..1", help="of the requests")
    out.add_argument("--payload-text", action="store_true", help="the texts too, not only their digests")
    return out


def read_options(options: dict[str, Any]) -> ServerConfig:
    payload_settings = {
        name: options.pop(f"payload_{name}") for name in ("share", "text") if f"payload_{name}" in options
    }
    store = options.pop("payload_log", None)
    if payload_settings and store is None:
        raise ConfigError("--payload-share, --payload-text: mean nothing without --payload-log STORE.")
    log = {"payload_log": {"store": store, **payload_settings}} if store is not None else {}
    return ServerConfig.parse({**options, **log}, "serving.rewriter")


def serve(config: ServerConfig) -> None:
    from serving.http_server import listen, log_to_stderr, serve_app
    from serving.kserve_app import require_model_folder
    from serving.rewriter.app import create_app
    from serving.rewriter.model import KServeRewriter

    log_to_stderr()
    require_model_folder(config.model)
    model = KServeRewriter(config)
    app = create_app(model)  # loaded before anyone can connect

    async def served() -> None:
        watching = asyncio.create_task(model.watch())
        await serve_app("rewriter", app, listen(config.host, config.port))
        watching.cancel()
        await model.backend.aclose()

    try:
        asyncio.run(served())
    finally:
        model.close()


if __name__ == "__main__":
    main()
