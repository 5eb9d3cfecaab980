"""python -m serving.teacher --kb fivedoctors=knowledge_base.jsonl --latency 0.2 --port 0"""

import argparse
import sys

from qinglan.errors import ConfigError, QinglanError
from serving.teacher.config import Behaviour, TeacherConfig
from serving.teacher.server import serve


def main() -> None:
    usual = Behaviour()
    parser = argparse.ArgumentParser(prog="python -m serving.teacher", description="The stand-in for paid models.")
    parser.add_argument("--kb", action="append", required=True, metavar="TENANT=PATH")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100, help="0 takes a free one")
    for name in Behaviour.model_fields:
        default = getattr(usual, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    try:
        serve(read_config(parser.parse_args()))
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def read_config(given: argparse.Namespace) -> TeacherConfig:
    values = {
        "knowledge_bases": dict(_pair(text) for text in given.kb),
        "behaviour": {name: getattr(given, name) for name in Behaviour.model_fields},
        "host": given.host,
        "port": given.port,
    }
    return TeacherConfig.parse(values, "stand-in teacher")


def _pair(text: str) -> tuple[str, str]:
    tenant, equals, path = text.partition("=")
    if not (equals and path):
        raise ConfigError(f"--kb {text}: write TENANT=PATH.")
    return tenant, path


if __name__ == "__main__":
    main()
