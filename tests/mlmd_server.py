"""A real ML Metadata store, the library's own C++ engine over SQLite, behind its own gRPC protocol.

    python tests/mlmd_server.py FILE     # in the environment of tests/mlmd.lock; prints {"port": ...}

The method Calls of the service Counted answers with how often each of the others was called.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as engine
from ml_metadata.proto import metadata_store_pb2, metadata_store_service_pb2

CODES = {code.value[0]: code for code in grpc.StatusCode}
ONE_AT_A_TIME = threading.Lock()


def method(store: Any, name: str, counts: "Counter[str]") -> Callable[[bytes, Any], bytes]:
    call = getattr(engine, name)

    def answer(request: bytes, context: Any) -> bytes:
        counts[name] += 1
        with ONE_AT_A_TIME:
            response, message, code = call(store, request)
        if code:
            context.abort(CODES[code], message.decode() if isinstance(message, bytes) else message)
        return bytes(response)

    return answer


def main(path: str) -> None:
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    migration = metadata_store_pb2.MigrationOptions()
    store = engine.CreateMetadataStore(config.SerializeToString(), migration.SerializeToString())
    counts: Counter[str] = Counter()
    service = metadata_store_service_pb2.DESCRIPTOR.services_by_name["MetadataStoreService"]
    methods = {
        one.name: grpc.unary_unary_rpc_method_handler(method(store, one.name, counts))
        for one in service.methods
        if hasattr(engine, one.name)
    }
    calls = {"Calls": grpc.unary_unary_rpc_method_handler(lambda request, context: json.dumps(counts).encode())}
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("ml_metadata.MetadataStoreService", methods),
            grpc.method_handlers_generic_handler("Counted", calls),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"port": port}), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
