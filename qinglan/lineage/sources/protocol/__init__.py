"""ML Metadata's gRPC messages, cut to what we use; `make protocol` compiles mlmd.proto again."""
