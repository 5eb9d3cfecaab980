"""Rewrites of the present model version, by tenant, question, profile and history.

The model decodes greedily, so a version always writes the same, and entries do not expire. The cache belongs to one
version. It is closed during a rollout, when two versions answer at one address: no question is tied to the version
that answered it first, and a rollout counts questions, not copies of an earlier answer.
"""

import hashlib
import time
from typing import NamedTuple

import orjson

from qinglan.rag.contract import RagRequest
from serving.rag.lru_cache import LruCache

SAME_ANSWERS = 500
"""Answers in a row by one version after which a rollout counts as ended. Beside a canary with 5 % of the users this
happens by chance once in 10^11 times (0.95^500), beside one with 1 % once in 150."""

CONFIRM_SECONDS = 5.0
"""Seconds without an answer of the rewriter after which a question is passed on although its rewrite is known."""


class RewriteResult(NamedTuple):
    query: str
    version: str
    guarded: bool = False
    """True if the rewriter's own guard replaced the text with the plain query."""

    cached: bool = False


class RewriteCache:
    """The most recently used rewrites of one version, up to a number of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rewrites = LruCache[bytes, RewriteResult](most)
        self._version = ""
        self._same_answers = SAME_ANSWERS
        self._confirm_at = 0.0

    @property
    def open(self) -> bool:
        """False without room for entries, and during a rollout."""
        return self._most > 0 and self._same_answers >= SAME_ANSWERS

    def known(self, request: RagRequest) -> RewriteResult | None:
        return self._rewrites.get(rewrite_key(request)) if self.open else None

    def current(self, request: RagRequest) -> RewriteResult | None:
        """The known rewrite; None for one question in a while, whose answer shows the present version."""
        rewrite = self.known(request)
        if rewrite and (now := time.monotonic()) >= self._confirm_at:
            self._confirm_at = now + CONFIRM_SECONDS
            return None
        return rewrite

    def add(self, request: RagRequest, rewrite: RewriteResult) -> None:
        """Store the model's answer; another version than before empties the cache and closes it for a while."""
        self._confirm_at = time.monotonic() + CONFIRM_SECONDS
        if rewrite.version == self._version:
            self._same_answers += 1
        elif self._version:  # two versions answer: a rollout is under way
            self._rewrites, self._same_answers = LruCache(self._most), 1
        self._version = rewrite.version
        if self.open and not rewrite.guarded:
            self._rewrites.put(rewrite_key(request), rewrite._replace(cached=True))


def rewrite_key(request: RagRequest) -> bytes:
    """Digest of everything that the rewriter reads, so that the cache holds no histories."""
    read = (request.tenant_id, request.query, request.user_profile, request.history_summary)
    return hashlib.sha256(orjson.dumps(read)).digest()
