"""python -m standins.teacher --kb fivedoctors=knowledge_base.jsonl --latency 0.2 --port 0"""

import argparse
import json
import sys
from typing import Any

from qinglan.errors import ConfigError, QinglanError
from qinglan.terminal import program_name, say_error
from standins.behaviour_options import options_parser, read_behaviour, serve
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour, TeacherConfig
from standins.teacher.stand_in_backend import StandInBackend


def main() -> None:
    arguments = parser().parse_args()
    try:
        config = read_config(arguments)
        backend = StandInBackend(config.knowledge_bases, config.vocabularies, config.variants)
        serve("teacher", create_app(backend, config.behaviour), arguments, path="/v1")
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def parser() -> argparse.ArgumentParser:
    out = options_parser(program_name("standins.teacher"), "The stand-in for paid models.", Behaviour, 8100)
    knowledge_base = "a tenant's knowledge base, that it thinks with; once for each"
    out.add_argument("--kb", action="append", required=True, metavar="TENANT=PATH", help=knowledge_base)
    vocabulary = "phrasings that mean each house term, YAML, for the judge of relevance"
    out.add_argument("--vocabulary", action="append", default=[], metavar="TENANT=PATH", help=vocabulary)
    variant = 'a further model: {"tenant": ..., "skill": ...}'
    out.add_argument("--variant", action="append", default=[], metavar="MODEL=JSON", help=variant)
    return out


def read_config(arguments: argparse.Namespace) -> TeacherConfig:
    values = {
        "knowledge_bases": dict(_pair("--kb", text, "TENANT=PATH") for text in arguments.kb),
        "vocabularies": dict(_pair("--vocabulary", text, "TENANT=PATH") for text in arguments.vocabulary),
        "variants": dict(_variant(text) for text in arguments.variant),
        "behaviour": read_behaviour(arguments, Behaviour, "stand-in teacher"),
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
