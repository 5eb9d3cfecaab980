"""Rewriters of a benchmark's queries: trained models behind the server of production, and any HTTP rewriter."""

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from components.evaluation.rewriter.student_timing import rewriter_server
from pipelines.lines.all_lines import ARTIFACT_FILES
from qinglan.concurrency import map_in_order
from qinglan.config import parse_as
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.rag.contract import RagRequest
from qinglan.rewriter.card import CARD
from qinglan.rows.rows import Question
from qinglan.terminal.progress import progress
from serving.rag.config import RewriterConfig
from serving.rag.rewriter_client import read_rewrite, request_body
from serving.rag.service_client import ServiceClient, ServiceError
from serving.rag.url_checks import refuse_credentials

SECONDS = 120.0
"""Time limit of one rewrite: long, as a large model without a GPU is slow and no user waits."""

ATTEMPTS, PAUSE = 3, 2.0
UNREAD = (400, 413, 422)
"""Statuses by which a rewriter refuses one question, such as one with a history longer than it reads."""

TRY_AGAIN = (408, 429)
"""Statuses below 500 of a rewriter that may answer later."""

AT_ONCE = 8
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
"""Names of environment variables; what looks otherwise may be a key that was typed by mistake."""

LONGEST_QUERY = 4000
"""The longest query that rewriters and RAG service take."""


class Rewrites(NamedTuple):
    """One rewriter's queries, in the order of the rows."""

    queries: list[str]
    """The rewrites; an empty text where it wrote nothing."""

    as_asked: int = 0
    """Questions that were searched as they were: its guard took the rewrite back, or there was none."""

    refused: int = 0
    """Questions that it refused, and that were searched as they were."""

    refusal: str = ""
    """The message of the first refusal."""


class Answer(NamedTuple):
    """A rewriter's answer to one question."""

    query: str
    guarded: bool = False
    """True if its guard rejected the rewrite, so that the query is the question."""

    refusal: str = ""
    """Why it refused the question, so that the query is the question; "" otherwise."""


class RemoteRewriter(NamedTuple):
    """A rewriter that somebody else serves."""

    config: RewriterConfig
    key_env: str = ""
    """Environment variable with its API key, sent as a bearer token; empty sends none."""

    def headers(self) -> dict[str, str]:
        """Headers of every request; a ConfigError if the variable is not set."""
        if not self.key_env:
            return {}
        if key := os.environ.get(self.key_env, "").strip():
            return {"authorization": f"Bearer {key}"}
        raise ConfigError(f"--rewriter {self.config.url}: the environment variable {self.key_env} is not set.")


def read_rewriter(text: str) -> tuple[str, RemoteRewriter]:
    """Parse `NAME=URL`, `NAME=kserve=URL` or `NAME=openai=URL,model=MODEL`, each with `,key=VARIABLE` at its end."""
    text, _, key_env = text.partition(",key=")
    if key_env and not VARIABLE.fullmatch(key_env):
        raise ConfigError(
            "--rewriter: after `key=` comes the name of the environment variable that holds the API key, such as "
            "key=QINGLAN_API_KEY, not the key itself. Nothing was sent."
        )
    name, equals, address = text.partition("=")
    refuse_credentials("--rewriter", address, "Name the variable of an API key: --rewriter NAME=URL,key=VARIABLE.")
    kind, named, rest = address.partition("=")
    if not named or kind.startswith("http"):
        kind, rest = "kserve", address
    url, _, model = rest.partition(",model=")
    if not equals or not url:
        raise ConfigError(f"--rewriter {text}: write NAME=URL, or NAME=openai=URL,model=MODEL.")
    values = {"kind": kind, "url": url, "deadline_seconds": SECONDS, **({"model": model} if model else {})}
    remote = RemoteRewriter(parse_as(RewriterConfig, values, f"--rewriter {text}"), key_env)
    remote.headers()  # a missing key is told before anything is asked
    return name, remote


def read_model(text: str) -> tuple[str, Path]:
    """Parse `NAME=FOLDER`: a rewriter's folder, or a release that holds one."""
    name, equals, folder = text.partition("=")
    if not equals or not folder:
        raise ConfigError(f"--model {text}: write NAME=FOLDER.")
    return name, model_folder(Path(folder), f"--model {text}")


def model_folder(folder: Path, option: str) -> Path:
    for path in (folder, folder / "model"):
        if (path / CARD).is_file():
            return path
    raise ConfigError(f"{option}: {folder} holds no rewriter ({CARD}). Name a model's folder or a release.")


def run_models(run: Path) -> dict[str, Path]:
    """The models of a run, by the names of its evaluation."""
    files = {name: run / "files" / ARTIFACT_FILES[f"{name}_model"] for name in ("sft", "rl")}
    models = {name: folder for name, folder in files.items() if (folder / CARD).is_file()}
    if not models:
        raise ConfigError(f"--run {run}: no model in {run / 'files'}. Name a run that got as far as sft.")
    return models


def ask_model(folder: Path, rows: Sequence[Question], label: str) -> Rewrites:
    """Serve a model on loopback, as production does, and ask it."""
    with rewriter_server(folder) as url:
        config = RewriterConfig(url=url(), deadline_seconds=SECONDS)
        return ask_rewriter(RemoteRewriter(config), rows, label)


def ask_rewriter(rewriter: RemoteRewriter, rows: Sequence[Question], label: str) -> Rewrites:
    """All rewrites; an outage is an error, never a score."""
    return asyncio.run(_ask(rewriter, rows, label))


async def _ask(rewriter: RemoteRewriter, rows: Sequence[Question], label: str) -> Rewrites:
    config = rewriter.config
    client = ServiceClient(config.url, SECONDS, rewriter.headers())
    answers: list[Answer] = []
    try:
        with progress(label, len(rows)) as tick:
            async for answer in map_in_order(rows, lambda row: _rewrite(client, config, row), AT_ONCE):
                answers.append(answer)
                tick()
    finally:
        await client.aclose()
    refusals = [answer.refusal for answer in answers if answer.refusal]
    if len(refusals) == len(rows):
        raise DataError(f"Rewriter {config.url}: refused every question. To {rows[0].id} it said: {refusals[0]}")
    guarded = sum(answer.guarded for answer in answers)
    return Rewrites([answer.query for answer in answers], guarded, len(refusals), next(iter(refusals), ""))


async def _rewrite(client: ServiceClient, config: RewriterConfig, row: Question) -> Answer:
    """The rewrite; a question that the rewriter refuses is searched as it was asked, as the RAG service does."""
    path, body = request_body(config, rewrite_request(row))
    try:
        content = await _answer(client, config, path, body)
    except ServiceError as refusal:
        if refusal.status in UNREAD:
            return Answer(row.question, refusal=f"{refusal.status} {refusal.answer}")
        raise DataError(
            f"Rewriter {config.url}{path}: query {row.id} got status {refusal.status}: {refusal.answer!r}. Check the "
            "address; if it wants an API key, add `,key=VARIABLE` with the environment variable that holds it."
        ) from refusal
    try:
        rewrite = read_rewrite(config, content)
    except ServiceError as failure:
        if str(failure) == "empty":
            return Answer("")
        raise DataError(
            f"Rewriter {config.url}{path}: query {row.id} got no {config.kind} answer: {content[:200]!r}. See "
            "serving/rewriter/README.md for the protocol."
        ) from failure
    return Answer(rewrite.query, rewrite.guarded)


async def _answer(client: ServiceClient, config: RewriterConfig, path: str, body: object) -> bytes:
    """The answer, or ServiceError where another try would be refused again; an outage is an OutageError."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await client.post(path, body)
        except ServiceError as failure:
            if 300 <= failure.status < 500 and failure.status not in TRY_AGAIN:
                raise
            if attempt == ATTEMPTS:
                reason = f"{failure} {failure.status}" if failure.status else str(failure)
                raise OutageError(
                    f"Rewriter {config.url}{path}: no rewrite after {ATTEMPTS} attempts ({reason}). Start it, and "
                    "call the same command again."
                ) from failure
            await asyncio.sleep(PAUSE)
    raise AssertionError("unreachable")


def rewrite_request(row: Question) -> RagRequest:
    return RagRequest(
        query=row.question[:LONGEST_QUERY], tenant_id=row.tenant_id, user_profile=row.user_profile,
        history_summary=row.history_summary,
    )  # fmt: skip
