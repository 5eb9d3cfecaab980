"""python -m standins.teacher --kb fivedoctors=knowledge_base.jsonl --latency 0.2 --port 0"""

import argparse
import json
import sys
from typing import Any

from qinglan.errors import ConfigError, QinglanError
from qinglan.terminal import program_name, say_error
from standins.teacher.config import Behaviour, TeacherConfig
from standins.teacher.server import serve


def main() -> None:
    try:
        serve(read_config(parser().parse_args()))
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def parser() -> argparse.ArgumentParser:
    """The command line's parser; its words for a behaviour are those of the setting."""
    usual = Behaviour()
    out = argparse.ArgumentParser(prog=program_name("standins.teacher"), description="The stand-in for paid models.")
    knowledge_base = "a tenant's knowledge base, that it thinks with; once for each"
    out.add_argument("--kb", action="append", required=True, metavar="TENANT=PATH", help=knowledge_base)
    vocabulary = "phrasings that mean each house term, YAML, for the judge of relevance"
    out.add_argument("--vocabulary", action="append", default=[], metavar="TENANT=PATH", help=vocabulary)
    out.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="MODEL=JSON",
        help='a further model: {"tenant": ..., "skill": ...}',
    )
    out.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one")
    out.add_argument("--port", type=int, default=8100, help="0 takes a free one")
    for name, field in Behaviour.model_fields.items():
        default, words = getattr(usual, name), " ".join((field.description or "").split())
        option, metavar = f"--{name.replace('_', '-')}", "LIST" if isinstance(default, str) else "N"
        out.add_argument(option, type=type(default), default=default, metavar=metavar, help=words)
    return out


def read_config(arguments: argparse.Namespace) -> TeacherConfig:
    values = {
        "knowledge_bases": dict(_pair("--kb", text, "TENANT=PATH") for text in arguments.kb),
        "vocabularies": dict(_pair("--vocabulary", text, "TENANT=PATH") for text in arguments.vocabulary),
        "variants": dict(_variant(text) for text in arguments.variant),
        "behaviour": {name: getattr(arguments, name) for name in Behaviour.model_fields},
        "host": arguments.host,
        "port": arguments.port,
    }
    return TeacherConfig.parse(values, "stand-in teacher")


def _pair(flag: str, text: str, shape: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and value):
        raise ConfigError(f"{flag} {text}: write {shape}.")
    return name, value


def _variant(text: str) -> tuple[str, Any]:
    name, value = _pair("--variant", text, "MODEL=JSON")
    try:
        return name, json.loads(value)
    except ValueError as error:
        raise ConfigError(f"--variant {text}: not JSON after the name ({error}).") from error


if __name__ == "__main__":
    main()
