"""Serve an ML Metadata store: its library's own C++ engine on SQLite, over its own gRPC protocol.

    python mlmd_server.py DATABASE GRPC_PORT WEB_PORT

The second port answers the same calls as gRPC-web, which KFP's page speaks and Envoy translates in an installation.
This file runs in the environment of ml-metadata and imports nothing of ours.
"""

import base64
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVICE = "ml_metadata.MetadataStoreService"
Method = Callable[[bytes], tuple[bytes, str, int]]
"""From a request to the answer, an error message and its canonical code; 0 is no error."""


def open_methods(path: str) -> dict[str, Method]:
    from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as engine
    from ml_metadata.proto import metadata_store_pb2, metadata_store_service_pb2

    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    store = engine.CreateMetadataStore(
        config.SerializeToString(), metadata_store_pb2.MigrationOptions().SerializeToString()
    )
    alone = threading.Lock()  # SQLite's connection is one

    def method(call: Callable[..., Any]) -> Method:
        def answer(request: bytes) -> tuple[bytes, str, int]:
            with alone:
                response, message, code = call(store, request)
            return response, message.decode() if isinstance(message, bytes) else message, code

        return answer

    service = metadata_store_service_pb2.DESCRIPTOR.services_by_name["MetadataStoreService"]
    return {it.name: method(getattr(engine, it.name)) for it in service.methods if hasattr(engine, it.name)}


def serve_grpc(methods: dict[str, Method], port: int) -> Any:
    import grpc

    codes = {code.value[0]: code for code in grpc.StatusCode}

    def handler(method: Method) -> Any:
        def handle(request: bytes, context: Any) -> bytes:
            response, message, code = method(request)
            if code:
                context.abort(codes[code], message)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)

    handlers = {name: handler(method) for name, method in methods.items()}
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


def web_answer(response: bytes, message: str, code: int) -> bytes:
    """The frames of gRPC-web: one of data, unless it failed, and one of trailers."""
    trailers = f"grpc-status:{code}\r\ngrpc-message:{message}\r\n".encode()
    data = b"" if code else _frame(0, response)
    return data + _frame(0x80, trailers)


def _frame(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def web_request(body: bytes, text: bool) -> bytes:
    """The message in a request's one frame, in base64 in gRPC-web's text form."""
    frame = base64.b64decode(body) if text else body
    return frame[5 : 5 + int.from_bytes(frame[1:5], "big")]


def web_server(methods: dict[str, Method], port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            method = methods.get(self.path.rpartition("/")[2])
            kind = self.headers.get("content-type", "")
            text = "grpc-web-text" in kind
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = web_answer(*(method(web_request(body, text)) if method else (b"", "no such method", 12)))
            answer = base64.b64encode(answer) if text else answer
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Write no line for each request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    path, port, web_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    methods = open_methods(path)
    web = web_server(methods, web_port)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    serve_grpc(methods, port).wait_for_termination()


if __name__ == "__main__":
    main()
