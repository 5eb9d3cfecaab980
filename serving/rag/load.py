"""python -m serving.rag.load --opensearch http://127.0.0.1:9200 --kb fivedoctors=kb.jsonl

Loads knowledge bases into OpenSearch for `python -m serving.rag --opensearch`. A second run resumes an interrupted
load.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from qinglan.errors import ConfigError
from qinglan.terminal import say_json
from serving.programs import exit_on_error
from serving.rag.config import KnowledgeBaseSource
from serving.rag.opensearch.loader import load
from serving.rag.opensearch_connection import OpenSearchConfig, connect_to_load

BULK_SECONDS = 60.0
"""Time limit of one bulk request in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.rag.load", description=__doc__)
    parser.add_argument("--opensearch", required=True, metavar="URL")
    parser.add_argument("--kb", action="append", required=True, metavar="TENANT[/KB]=PATH")
    parser.add_argument("--replicas", type=int, default=1, help="copies of each index beside the first (1)")
    parser.add_argument("--patience", type=float, default=300.0, metavar="SECONDS", help="for a cluster that is away")
    parser.add_argument(
        "--refused", type=Path, default=Path(), metavar="FOLDER", help="for reports of refused passages"
    )
    with exit_on_error():
        load_all(**vars(parser.parse_args()))


def load_all(opensearch: str, kb: list[str], replicas: int, patience: float, refused: Path) -> None:
    """Load the knowledge bases one after the other. Print a line of JSON for each, with the served index."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    config = OpenSearchConfig.read(opensearch, BULK_SECONDS)
    if config is None:
        raise ConfigError("--opensearch: give the URL of the cluster.")
    client = connect_to_load(config)
    for source in map(KnowledgeBaseSource.read, kb):
        tenant, name = source.tenant_id, source.kb_name
        if source.path is None:
            raise ConfigError(f"--kb {tenant}/{name}: give the file to load, {tenant}/{name}=PATH.")
        began = time.monotonic()
        report = refused / f"refused.{tenant}.{name}.jsonl"
        loaded = load(client, source.path, tenant, name, replicas, patience, report)
        say_json({**loaded._asdict(), "seconds": round(time.monotonic() - began, 1)})


if __name__ == "__main__":
    main()
