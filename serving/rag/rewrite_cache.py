"""Rewrites of the model version that answers now, by tenant, question, profile and history.

The model writes greedily, so the same version writes the same again, and an entry needs no age. The cache holds for
one version alone. It is closed during a rollout, when two versions answer at one address: no question is tied to the
version that answered it first, and a rollout counts questions, not copies of an earlier answer.
"""

import hashlib
import time
from typing import NamedTuple

import orjson

from qinglan.rag.contract import RagRequest
from serving.rag.lru_cache import LruCache

SAME_ANSWERS = 500
"""Answers in a row by one version until a rollout counts as ended. Of a canary with 5 % of the users so many in a row
come once in 10^11 times, of one with 1 % once in 150."""

CONFIRM_SECONDS = 5.0
"""Longest time without an answer of the rewriter; then a question is passed on although its rewrite is known."""


class RewriteResult(NamedTuple):
    query: str
    version: str
    guarded: bool = False
    """The rewriter's own guard took its text back, and gave the plain query."""

    cached: bool = False


class RewriteCache:
    """The most recently used rewrites of one version, so many of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rewrites = LruCache[bytes, RewriteResult](most)
        self._version = ""
        self._same_answers = SAME_ANSWERS
        self._confirm_at = 0.0

    @property
    def open(self) -> bool:
        """Closed where it may hold nothing, and while a rollout is under way."""
        return self._most > 0 and self._same_answers >= SAME_ANSWERS

    def known(self, request: RagRequest) -> RewriteResult | None:
        return self._rewrites.get(rewrite_key(request)) if self.open else None

    def current(self, request: RagRequest) -> RewriteResult | None:
        """The known rewrite, unless it is time to hear which version answers: then None, for one question."""
        rewrite = self.known(request)
        if rewrite and (now := time.monotonic()) >= self._confirm_at:
            self._confirm_at = now + CONFIRM_SECONDS
            return None
        return rewrite

    def add(self, request: RagRequest, rewrite: RewriteResult) -> None:
        """Keep the model's answer; another version than before empties the cache and closes it for a while."""
        self._confirm_at = time.monotonic() + CONFIRM_SECONDS
        if rewrite.version == self._version:
            self._same_answers += 1
        elif self._version:
            self._rewrites, self._same_answers = LruCache(self._most), 1
        self._version = rewrite.version
        if self.open and not rewrite.guarded:
            self._rewrites.put(rewrite_key(request), rewrite._replace(cached=True))


def rewrite_key(request: RagRequest) -> bytes:
    """Digest of all that the rewriter reads; the memory holds no histories."""
    read = (request.tenant_id, request.query, request.user_profile, request.history_summary)
    return hashlib.sha256(orjson.dumps(read)).digest()
