"""KServe's own application (V1, V2, health, metrics) around the one model; who listens and drains is ours."""

import logging
from pathlib import Path
from typing import Any

from serving.rewriter.model import Rewriter


def create_app(folder: Path, name: str) -> Any:
    """The application with the model loaded; a model that cannot be loaded is an error before anyone is served."""
    from kserve import ModelServer
    from kserve.model_server import app
    from kserve.protocol.rest.server import RESTServer

    model = Rewriter(name, folder)
    model.load()
    server = ModelServer(enable_grpc=False, enable_latency_logging=False)
    server.register_model(model)
    logging.getLogger("kserve").setLevel(logging.WARNING)
    logging.getLogger("kserve").addFilter(in_a_line)
    rest = RESTServer("kserve.model_server:app", server.dataplane, server.model_repository_extension, http_port=0)
    rest.create_application()  # puts its routes on the module's own application
    return app


def in_a_line(record: logging.LogRecord) -> bool:
    """A question that cannot be answered is no fault of ours: a line in the log, where KServe writes a traceback."""
    from kserve.errors import InvalidInput

    if record.exc_info and isinstance(record.exc_info[1], InvalidInput):
        record.msg, record.args, record.exc_info = f"refused: {record.exc_info[1]}", (), None
    return True
