"""Build the command lines of the stand-in servers, with an option for each setting of a behaviour, and serve them."""

import argparse
import asyncio
from typing import TypeVar

import uvloop
from fastapi import FastAPI

from qinglan.config import Config
from serving.http_server import listen, log_to_stderr, serve_app

Behaviour = TypeVar("Behaviour", bound=Config)


def options_parser(program: str, description: str, behaviour: type[Config], port: int) -> argparse.ArgumentParser:
    """Build the parser. The help of an option is the description of its setting."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one")
    parser.add_argument("--port", type=int, default=port, help="0 takes a free one")
    usual = behaviour()
    for name, field in behaviour.model_fields.items():
        default, words = getattr(usual, name), " ".join((field.description or "").split())
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=default, help=words)
        else:
            metavar = "TEXT" if isinstance(default, str) else "N"
            parser.add_argument(option, type=type(default), default=default, metavar=metavar, help=words)
    return parser


def read_behaviour(arguments: argparse.Namespace, behaviour: type[Behaviour], where: str) -> Behaviour:
    return behaviour.parse({name: getattr(arguments, name) for name in behaviour.model_fields}, where)


def serve(name: str, app: FastAPI, arguments: argparse.Namespace, path: str = "") -> None:
    """Serve until SIGTERM. One line of JSON on stdout has the server's address."""
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app(name, app, listen(arguments.host, arguments.port), path=path))
