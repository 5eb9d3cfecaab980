"""python -m serving.rag --kb fivedoctors=kb.jsonl --index-root indexes --port 0"""

import argparse
import sys
from pathlib import Path

from qinglan.errors import ConfigError, QinglanError
from serving.rag.config import RagConfig, RewriterConfig, Source
from serving.rag.server import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.rag", description="The RAG service.")
    parser.add_argument("--kb", action="append", required=True, metavar="TENANT[/KB]=PATH")
    parser.add_argument("--index-root", required=True, type=Path)
    parser.add_argument("--reranker", action="append", default=[], metavar="TENANT=PATH")
    parser.add_argument("--rewriter", metavar="[kserve=|openai=]URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    try:
        serve(read_config(parser.parse_args()))
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def read_config(given: argparse.Namespace) -> RagConfig:
    values = {
        "knowledge_bases": [Source.read(text) for text in given.kb],
        "index_root": given.index_root,
        "host": given.host,
        "port": given.port,
        "rewriter": RewriterConfig.read(given.rewriter) if given.rewriter else None,
        "rerankers": dict(_pair(text) for text in given.reranker),
    }
    return RagConfig.parse(values, "RAG service")


def _pair(text: str) -> tuple[str, str]:
    tenant, equals, path = text.partition("=")
    if not equals:
        raise ConfigError(f"--reranker {text}: write TENANT=PATH.")
    return tenant, path


if __name__ == "__main__":
    main()
