"""Loads the brains, says where it listens, and answers until it is told to stop."""

import asyncio

import uvloop

from serving.listening import listen, log_to_stderr, serve_app
from serving.teacher.app import create_app
from serving.teacher.brain import Brains
from serving.teacher.config import TeacherConfig
from serving.teacher.examining import load_examiners
from serving.teacher.extractive import load_brain


def serve(config: TeacherConfig) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the base URL to configure."""
    log_to_stderr()
    brains = Brains(load_brain(config.knowledge_bases), load_examiners(config.knowledge_bases))
    app = create_app(brains, config.behaviour)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("teacher", app, listen(config.host, config.port), path="/v1"))
