"""Cache of the current model version's rewrites, by tenant, question, profile and history.

The model decodes greedily, so a version always writes the same rewrite, and entries do not expire. The cache holds
rewrites of only one version. It is closed during a rollout, when two versions answer at one address: a cached rewrite
would tie a question to one version, and would not count in the rollout's comparison.
"""

import hashlib
import time
from typing import NamedTuple

import orjson

from qinglan.rag.contract import RagRequest
from serving.rag.lru_cache import LruCache

SAME_ANSWERS = 500
"""Consecutive answers by one version after which a rollout counts as ended. During a rollout this happens by chance
once in 10^11 times if a canary has 5 % of the users (0.95^500), and once in 150 times if it has 1 %."""

CONFIRM_SECONDS = 5.0
"""Seconds after the rewriter's last answer at which a question is sent to it although its rewrite is cached."""


class RewriteResult(NamedTuple):
    query: str
    version: str
    guarded: bool = False
    """True if the rewriter's guard replaced the rewrite with the plain query."""

    cached: bool = False


class RewriteCache:
    """Cache of the `most` most recently used rewrites of one version."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rewrites = LruCache[bytes, RewriteResult](most)
        self._version = ""
        self._same_answers = SAME_ANSWERS
        self._confirm_at = 0.0

    @property
    def open(self) -> bool:
        """True if the cache is used: it has room for entries, and no rollout is under way."""
        return self._most > 0 and self._same_answers >= SAME_ANSWERS

    def known(self, request: RagRequest) -> RewriteResult | None:
        return self._rewrites.get(rewrite_key(request)) if self.open else None

    def current(self, request: RagRequest) -> RewriteResult | None:
        """Return the cached rewrite; None if there is none, or if the rewriter should be asked again.

        It should be asked if it has not answered for CONFIRM_SECONDS, so that a new version of its model is noticed.
        """
        rewrite = self.known(request)
        if rewrite and (now := time.monotonic()) >= self._confirm_at:
            self._confirm_at = now + CONFIRM_SECONDS
            return None
        return rewrite

    def add(self, request: RagRequest, rewrite: RewriteResult) -> None:
        """Store the model's rewrite. If its version is new, empty the cache and close it for SAME_ANSWERS answers."""
        self._confirm_at = time.monotonic() + CONFIRM_SECONDS
        if rewrite.version == self._version:
            self._same_answers += 1
        elif self._version:  # two versions answer: a rollout is under way
            self._rewrites, self._same_answers = LruCache(self._most), 1
        self._version = rewrite.version
        if self.open and not rewrite.guarded:
            self._rewrites.put(rewrite_key(request), rewrite._replace(cached=True))


def rewrite_key(request: RagRequest) -> bytes:
    """Cache key: a digest of all that the rewriter reads, so that the cache stores no user's history."""
    read = (request.tenant_id, request.query, request.user_profile, request.history_summary)
    return hashlib.sha256(orjson.dumps(read)).digest()
