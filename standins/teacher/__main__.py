"""python -m standins.teacher --kb fivedoctors=knowledge_base.jsonl --latency 0.2 --port 0"""

import argparse
import json
import sys
from typing import Any

from qinglan.errors import ConfigError, QinglanError
from qinglan.terminal import program_name, say_error
from standins.behaviour_options import options_parser, read_behaviour, serve
from standins.teacher.app import create_app
from standins.teacher.backend import BackendRouter, CompletionBackend
from standins.teacher.config import Behaviour, TeacherConfig
from standins.teacher.extractive_backend import load_extractive_backend
from standins.teacher.relevance_judge import ErrorRates, RelevanceBackend, relevance_judges
from standins.teacher.similarity_judge import SUFFIX, load_similarity_judges
from standins.teacher.variant_backend import VariantBackend


def main() -> None:
    arguments = parser().parse_args()
    try:
        config = read_config(arguments)
        serve("teacher", create_app(load_backend(config), config.behaviour), arguments, path="/v1")
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


def load_backend(config: TeacherConfig) -> CompletionBackend:
    """Load the backend with every tenant's model, its examiner, and the variants. All models also judge relevance."""
    tenants = load_extractive_backend(config.knowledge_bases)
    if unknown := {variant.tenant for variant in config.variants.values()} - config.knowledge_bases.keys():
        raise ConfigError(f"--variant: no --kb for tenant {', '.join(sorted(unknown))}. Give it one.")
    backends = BackendRouter(
        tenants, load_similarity_judges(config.knowledge_bases), VariantBackend(tenants, config.variants)
    )
    rates = ErrorRates(config.behaviour.label_misses, config.behaviour.label_false_hits)
    judging = {model: tenant for tenant in tenants.readers for model in (tenant, f"{tenant}{SUFFIX}")}
    judging |= {model: variant.tenant for model, variant in config.variants.items()}
    return RelevanceBackend(backends, relevance_judges(tenants.readers, config.vocabularies, judging, rates))


if __name__ == "__main__":
    main()
