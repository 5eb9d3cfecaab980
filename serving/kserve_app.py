"""Build KServe's application (V1, V2, health, metrics) around a model; rewriter and style server share this module.

serving/http_server.py runs the application. Callers cut sys.argv first, because kserve reads it when it is imported.
"""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from qinglan.errors import DataError
from serving.http_server import client_disconnected
from serving.request_errors import QueueFull, describe_validation_error

JSON = "application/json"
RETRY_SECONDS = "1"
BINARY_HEADER = "inference-header-content-length"
"""Header with which KServe marks a body whose tensors are bytes after the JSON."""

RenderError = Callable[[int, str, dict[str, str] | None], Response]
"""Function that renders status, message and headers in a service's error format."""


def require_model_folder(folder: Path) -> Path:
    """Return the folder of the option --model. Raises a DataError if it does not exist."""
    if not folder.is_dir():
        raise DataError(f"--model {folder}: no such folder. A run leaves its models in runs/<run>/files.")
    return folder


def create_app(model: Any) -> FastAPI:
    """Load the model and build its application. If the model cannot be loaded, the server does not start."""
    from kserve import ModelServer
    from kserve.model_server import app
    from kserve.protocol.rest.server import RESTServer

    warnings.filterwarnings("ignore", message="ORJSONResponse is deprecated")  # KServe's own, at its first answer
    model.load()
    server = ModelServer(enable_grpc=False, enable_latency_logging=False)
    server.register_model(model)
    # KServe's own probe is true as soon as the server listens.
    # https://github.com/kserve/kserve/blob/master/python/kserve/kserve/protocol/dataplane.py
    server.dataplane.ready = model.healthy
    logging.getLogger("kserve").setLevel(logging.WARNING)
    logging.getLogger("kserve").addFilter(shorten_client_errors)
    rest = RESTServer("kserve.model_server:app", server.dataplane, FixedModelRepository(), http_port=0)
    # KServe puts its routes on an application of its module instead of returning one.
    # https://github.com/kserve/kserve/blob/master/python/kserve/kserve/protocol/rest/server.py
    rest.create_application()
    application: FastAPI = app
    return application


class FixedModelRepository:
    """Model repository for KServe that refuses to load and unload models on request."""

    async def load(self, name: str) -> None:
        raise NotImplementedError("This server has one model, loaded when it started.")

    unload = load


def shorten_client_errors(record: logging.LogRecord) -> bool:
    """Logging filter that replaces KServe's traceback for an invalid request by one line."""
    from kserve.errors import InvalidInput, ModelNotFound

    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, InvalidInput | ModelNotFound | NotImplementedError):
        cause = "no such model" if isinstance(error, ModelNotFound) else error  # its message is what a caller typed
        record.msg, record.args, record.exc_info = f"refused: {cause}", (), None
    return True


def read_payload(payload: Any, headers: Any) -> Any:
    """Return the parsed values of a V1 request. KServe passes the raw bytes if the content type has a charset."""
    return read_json(payload, headers) if isinstance(payload, bytes) else payload


def is_json(headers: Mapping[str, str]) -> bool:
    """True if the content type is JSON, with any parameters. A missing content type counts as JSON."""
    return headers.get("content-type", JSON).partition(";")[0].strip().lower() == JSON


def read_json(body: bytes, headers: Any) -> Any:
    """Parse a JSON body. Raises InvalidInput (status 400) if the content type or the body is not JSON."""
    from kserve.errors import InvalidInput

    if not is_json(headers or {}):
        raise InvalidInput(f"Send {JSON}, with that content-type.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"The body is not JSON in UTF-8: {error.msg} at character {error.pos}.") from error


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Build an error answer in KServe's own format."""
    return JSONResponse({"error": message}, status, headers)


NOT_JSON_RESPONSE = error_response(
    400, f"Send tensors as {JSON}, with that content-type and without {BINARY_HEADER}."
)


def is_binary(headers: Mapping[str, str]) -> bool:
    """True if KServe's V2 protocol would read the body as bytes, as it does without a content type."""
    # https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
    return BINARY_HEADER in headers or "content-type" not in headers or not is_json(headers)


def add_error_handlers(app: FastAPI, refuse: RenderError) -> None:
    """Add handlers for all errors that KServe does not answer itself."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, refused: RequestValidationError) -> Response:
        return refuse(400, describe_validation_error(refused), None)

    @app.exception_handler(HTTPException)
    async def unserved(_: Request, refused: HTTPException) -> Response:
        return refuse(refused.status_code, str(refused.detail), None)

    @app.exception_handler(QueueFull)
    async def busy(_: Request, refused: QueueFull) -> Response:
        return refuse(429, str(refused), {"retry-after": RETRY_SECONDS})

    app.add_exception_handler(ClientDisconnect, client_disconnected)
