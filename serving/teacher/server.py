"""Loads the brain, says where it listens, and answers until it is told to stop."""

import asyncio

import uvloop

from serving.listening import listen, log_to_stderr, serve_app
from serving.teacher.app import create_app
from serving.teacher.config import TeacherConfig
from serving.teacher.extractive import load_brain


def serve(config: TeacherConfig) -> None:
    """Serve until SIGTERM; one line of JSON on stdout says the base URL to configure."""
    log_to_stderr()
    app = create_app(load_brain(config.knowledge_bases), config.behaviour)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_app("teacher", app, listen(config.host, config.port), path="/v1"))
