"""Shared parts of the tests of OpenSearch: knowledge bases of any size, loads of them, and a reader of indices."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from qinglan.files.files import dump_line
from qinglan.rag.contract import Passage
from serving.rag.opensearch.loader import LoadReport, load
from serving.rag.opensearch_connection import OpenSearchConfig, connect_to_load
from tests.cluster.search.opensearch import Node

MANY = 10_000
"""Passages that take seconds to load: long enough to be killed in the middle."""


def write_kb(path: Path, passages: Iterable[Passage]) -> Path:
    path.write_bytes(b"".join(map(dump_line, passages)))
    return path


def many(mark: str = "甲", count: int = MANY) -> Iterable[Passage]:
    """Each names its number and the mark of its file, so that an answer shows which file it is of."""
    for number in range(count):
        yield Passage(
            id=f"{mark}{number}", title=f"{mark}款产品 {number}号", content=f"{mark}款第{number}号，每日服用一次。"
        )


def load_now(node: Node, path: Path, tenant: str, kb: str = "default", patience: float = 60.0) -> LoadReport:
    client = connect_to_load(OpenSearchConfig(url=node.url, deadline_seconds=60))
    try:
        return load(client, path, tenant, kb, 0, patience, path.with_suffix(".refused.jsonl"))
    finally:
        client.close()


def loader(node: Node, path: Path, tenant: str, patience: float = 400.0) -> "subprocess.Popen[str]":
    """The command, as its own process."""
    command = [sys.executable, "-m", "serving.rag.load", "--opensearch", node.url, "--kb", f"{tenant}={path}"]
    command += ["--replicas", "0", "--patience", str(patience), "--refused", str(path.parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: "subprocess.Popen[str]") -> str:
    """Return the output of a command that must succeed."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def get(node: Node, path: str) -> Any:
    # Asked again and again: to read certificates for each call would take longer than the call.
    return httpx.get(node.url + path, timeout=30, trust_env=False, verify=False).json()


def indexes(node: Node, tenant: str, kb: str = "default") -> list[str]:
    return sorted(get(node, f"/qinglan.{tenant}.{kb}.*/_settings"))


def aliased(node: Node, tenant: str, kb: str = "default") -> list[str]:
    answer = get(node, f"/_alias/qinglan.{tenant}.{kb}")
    return sorted(name for name in answer if name.startswith("qinglan."))


def indexed_count(node: Node, tenant: str) -> int:
    """How many passages the node took already, in whichever index of the tenant."""
    stats = get(node, f"/qinglan.{tenant}.default.*/_stats/indexing,docs").get("indices", {})
    return sum(int(stat["primaries"]["indexing"]["index_total"]) for stat in stats.values())
