"""python -m serving.rag --kb fivedoctors=kb.jsonl --index-root indexes --port 0

python -m serving.rag --kb fivedoctors --opensearch https://search.example:9200    # loaded with serving.rag.load
"""

import argparse
import sys
from pathlib import Path

from qinglan.errors import QinglanError
from qinglan.terminal import program_name, say_error
from serving.rag.server import serve_knowledge_bases


def main() -> None:
    parser = argparse.ArgumentParser(prog=program_name("serving.rag"), description="The RAG service.")
    parser.add_argument("--kb", action="append", required=True, metavar="TENANT[/KB][=PATH]")
    indexes = "folder for the indexes of knowledge bases with a PATH; default: runs/index"
    parser.add_argument("--index-root", type=Path, metavar="FOLDER", help=indexes)
    parser.add_argument("--opensearch", default="", metavar="URL", help="searches the knowledge bases without a PATH")
    parser.add_argument("--opensearch-deadline", type=float, metavar="SECONDS", help="for one search there")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--rewriter", default="", metavar="[kserve=|openai=]URL")
    parser.add_argument("--rewriter-model", type=Path, metavar="FOLDER", help="an openai rewriter's: has its prompts")
    parser.add_argument("--rewriter-deadline", type=float, metavar="SECONDS", help="the longest wait for a rewrite")
    parser.add_argument("--rewrite-cache", type=int, metavar="ENTRIES", help="0 asks the rewriter every time")
    parser.add_argument("--as-asked", type=float, metavar="SCORE", help="from here on a question needs no rewrite")
    parser.add_argument("--reranker", action="append", default=[], metavar="TENANT=PATH")
    parser.add_argument("--reranker-service", default="", metavar="vllm=|tei=URL,model=NAME")
    parser.add_argument("--style", default="", metavar="URL", help="checks outgoing answers: /api/chat/content_check")
    # ContentConfig is the home of their defaults: what is not given is not passed on.
    check = parser.add_argument_group("content check", argument_default=argparse.SUPPRESS)
    check.add_argument("--style-deadline", dest="deadline_seconds", type=float, metavar="SECONDS")
    check.add_argument("--style-label", dest="label", metavar="NAME")
    check.add_argument("--called-for-threshold", type=float, metavar="P")
    check.add_argument("--harmless-threshold", type=float, metavar="P")
    try:
        serve_knowledge_bases(**vars(parser.parse_args()))
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
