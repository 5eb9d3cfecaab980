"""python -m standins.teacher --kb fivedoctors=knowledge_base.jsonl --latency 0.2 --port 0"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from qinglan.errors import ConfigError
from qinglan.terminal import program_name
from serving.programs import exit_on_error
from standins.behaviour_options import options_parser, read_behaviour, serve
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour, Variant
from standins.teacher.stand_in_backend import StandInBackend


def main() -> None:
    arguments = parser().parse_args()
    with exit_on_error():
        behaviour = read_behaviour(arguments, Behaviour, "stand-in teacher")
        knowledge_bases = {name: Path(path) for name, path in _pairs("--kb", arguments.kb)}
        vocabularies = {name: Path(path) for name, path in _pairs("--vocabulary", arguments.vocabulary)}
        variants = {name: read_variant(name, text) for name, text in _pairs("--variant", arguments.variant)}
        app = create_app(StandInBackend(knowledge_bases, vocabularies, variants), behaviour)
        serve("teacher", app, arguments, path="/v1")


def parser() -> argparse.ArgumentParser:
    out = options_parser(program_name("standins.teacher"), "The stand-in for paid models.", Behaviour, 8100)
    knowledge_base = "a tenant's knowledge base, that it thinks with; once for each"
    out.add_argument("--kb", action="append", required=True, metavar="TENANT=PATH", help=knowledge_base)
    vocabulary = "phrasings that mean each house term, YAML, for the judge of relevance"
    out.add_argument("--vocabulary", action="append", default=[], metavar="TENANT=PATH", help=vocabulary)
    variant = 'a further model: {"tenant": ..., "skill": ...}'
    out.add_argument("--variant", action="append", default=[], metavar="MODEL=JSON", help=variant)
    return out


def _pairs(flag: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise ConfigError(f"{flag} {text}: write NAME=VALUE.")
        yield name, value


def read_variant(name: str, text: str) -> Variant:
    try:
        return Variant.parse(json.loads(text), f"--variant {name}")
    except ValueError as error:
        raise ConfigError(f"--variant {name}: not JSON after the name ({error}).") from error


if __name__ == "__main__":
    main()
