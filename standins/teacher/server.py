"""Loads the brains, says where it listens, and answers until it is told to stop."""

import asyncio

import uvloop

from qinglan.errors import ConfigError
from serving.listening import listen, log_to_stderr, serve_app
from standins.teacher.app import create_app
from standins.teacher.brain import Brains
from standins.teacher.config import TeacherConfig
from standins.teacher.examining import load_examiners
from standins.teacher.extractive import load_brain
from standins.teacher.variants import VariantBrain


def serve(config: TeacherConfig) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the base URL to configure."""
    log_to_stderr()
    brain = load_brain(config.knowledge_bases)
    if strangers := {one.tenant for one in config.variants.values()} - config.knowledge_bases.keys():
        raise ConfigError(f"--variant: no --kb for tenant {', '.join(sorted(strangers))}. Give it one.")
    brains = Brains(brain, load_examiners(config.knowledge_bases), VariantBrain(brain, config.variants))
    app = create_app(brains, config.behaviour)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("teacher", app, listen(config.host, config.port), path="/v1"))
