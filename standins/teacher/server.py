"""Loads the brains, says where it listens, and answers until it is told to stop."""

import asyncio

import uvloop

from qinglan.errors import ConfigError
from serving.http_server import listen, log_to_stderr, serve_app
from standins.teacher.app import create_app
from standins.teacher.backend import BackendRouter
from standins.teacher.config import TeacherConfig
from standins.teacher.extractive_backend import load_extractive_backend
from standins.teacher.relevance_judge import ErrorRates, RelevanceBackend, relevance_judges
from standins.teacher.similarity_judge import SUFFIX, load_similarity_judges
from standins.teacher.variant_backend import VariantBackend


def serve(config: TeacherConfig) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the base URL to configure."""
    log_to_stderr()
    brain = load_extractive_backend(config.knowledge_bases)
    if strangers := {variant.tenant for variant in config.variants.values()} - config.knowledge_bases.keys():
        raise ConfigError(f"--variant: no --kb for tenant {', '.join(sorted(strangers))}. Give it one.")
    brains = BackendRouter(
        brain, load_similarity_judges(config.knowledge_bases), VariantBackend(brain, config.variants)
    )
    rates = ErrorRates(config.behaviour.label_misses, config.behaviour.label_false_hits)
    judging = {model: tenant for tenant in brain.readers for model in (tenant, f"{tenant}{SUFFIX}")}
    judging |= {model: variant.tenant for model, variant in config.variants.items()}
    judges = relevance_judges(brain.readers, config.vocabularies, judging, rates)
    app = create_app(RelevanceBackend(brains, judges), config.behaviour)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("teacher", app, listen(config.host, config.port), path="/v1"))
