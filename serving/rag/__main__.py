"""python -m serving.rag --kb fivedoctors=kb.jsonl --index-root indexes --port 0

python -m serving.rag --kb fivedoctors --opensearch https://search.example:9200    # loaded with serving.rag.load
"""

import argparse
from pathlib import Path

from qinglan.terminal import program_name
from serving.programs import exit_on_error
from serving.rag.server import serve_knowledge_bases


def main() -> None:
    with exit_on_error():
        serve_knowledge_bases(parser().parse_args())


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    out = argparse.ArgumentParser(prog=program_name("serving.rag"), description="The RAG service.")
    add = out.add_argument
    knowledge_base = "a tenant's knowledge base, its JSONL at PATH; once for each"
    add("--kb", action="append", required=True, metavar="TENANT[/KB][=PATH]", help=knowledge_base)
    indexes = "folder for the indexes of knowledge bases with a PATH; default: runs/index"
    add("--index-root", type=Path, metavar="FOLDER", help=indexes)
    add("--opensearch", default="", metavar="URL", help="an OpenSearch: searches the knowledge bases without a PATH")
    add("--opensearch-deadline", type=float, metavar="SECONDS", help="the longest wait for a search there")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one")
    add("--port", type=int, default=8000, help="0 takes a free one")
    add("--rewriter", default="", metavar="[kserve=|openai=]URL", help="rewrites each question first")
    add("--rewriter-model", type=Path, metavar="FOLDER", help="of an openai rewriter's model: has its prompts")
    add("--rewriter-deadline", type=float, metavar="SECONDS", help="the longest wait for a rewrite")
    add("--rewrite-cache", type=int, metavar="ENTRIES", help="rewrites that are remembered; 0 asks every time")
    add("--as-asked", type=float, metavar="SCORE", help="from here on a question is searched as asked")
    add("--reranker", action="append", default=[], metavar="TENANT=PATH", help="a tenant's fitted reranker")
    scored = "scores passages in place of the local reranker"
    add("--reranker-service", default="", metavar="vllm=|tei=URL,model=NAME", help=scored)
    add("--style", default="", metavar="URL", help="checks outgoing answers: /api/chat/content_check")
    # ContentConfig has the defaults of these options, so missing options are not passed on.
    add = out.add_argument_group("content check", argument_default=argparse.SUPPRESS).add_argument
    longest = "the longest wait for the check"
    add("--style-deadline", dest="deadline_seconds", type=float, metavar="SECONDS", help=longest)
    add("--style-label", dest="label", metavar="NAME", help="the manner that is looked for")
    called_for = "from here on a question calls for that manner; 0: each does"
    add("--called-for-threshold", type=float, metavar="P", help=called_for)
    add("--harmless-threshold", type=float, metavar="P", help="below it an answer lacks that manner")
    return out


if __name__ == "__main__":
    main()
