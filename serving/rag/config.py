"""What one RAG service serves, and where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Positive, parse_as
from qinglan.errors import ConfigError
from serving.rag.opensearch.connecting import OpenSearchConfig


class Source(Config):
    """One knowledge base of one tenant."""

    tenant_id: Name
    kb_name: Name = "default"
    path: Path | None = None
    """JSONL, a passage a line: id, title, content, metadata. None: it was loaded into OpenSearch."""

    @classmethod
    def read(cls, text: str) -> Self:
        """`tenant`, `tenant/kb`, `tenant=path` or `tenant/kb=path`."""
        name, equals, path = text.partition("=")
        tenant, slash, kb = name.partition("/")
        if equals and not path:
            raise ConfigError(f"--kb {text}: write tenant=PATH or tenant/kb=PATH.")
        values = {"tenant_id": tenant, "path": path or None, **({"kb_name": kb} if slash else {})}
        return parse_as(cls, values, f"--kb {text}")


class RewriterConfig(Config):
    """The deployed rewriter, asked when a request brings no rewritten query."""

    kind: Literal["kserve", "openai"] = "kserve"
    """`kserve`: the V1 protocol, model `rewriter`. `openai`: chat completions, with the student's prompt."""

    url: str = Field(pattern=r"^https?://")
    """Without a path for kserve; for openai up to and with /v1."""

    model: str = "rewriter"
    deadline_seconds: float = Field(default=1.0, gt=0)
    """After it the plain query is searched: the user waits for the answer, not for the rewrite."""

    max_tokens: Positive = 64

    @classmethod
    def read(cls, text: str) -> Self:
        """`URL`, `kserve=URL` or `openai=URL`."""
        kind, equals, url = text.partition("=")
        named = equals and not kind.startswith("http")
        return parse_as(cls, {"kind": kind, "url": url} if named else {"url": text}, f"--rewriter {text}")


class ContentConfig(Config):
    """The style service that outgoing answers are checked with, and when one is flagged."""

    url: str = Field(pattern=r"^https?://")
    """Without a path: KServe's V1 protocol, model `style`."""

    deadline_seconds: float = Field(default=0.5, gt=0)
    """After it the application is told that the answer was not checked: its user waits."""

    label: str = "无伤害"
    """The manner that such a question calls for."""

    called_for_threshold: Fraction = 0.5
    """A question calls for it from here on; 0 makes every question do so: the bare threshold on the answer."""

    harmless_threshold: Fraction = 0.5
    """Below it the answer lacks it."""

    @classmethod
    def read(cls, url: str, chosen: Mapping[str, Any]) -> Self | None:
        """--style and the options that go with it."""
        if not url and chosen:
            raise ConfigError(f"{', '.join(chosen)}: means nothing without --style URL.")
        return parse_as(cls, {"url": url, **chosen}, f"--style {url}") if url else None


class RagConfig(Config):
    """One RAG service."""

    knowledge_bases: tuple[Source, ...] = Field(min_length=1)
    index_root: Path | None = None
    """Indexes are kept here by tenant, knowledge base and digest, and built when they are not there."""

    opensearch: OpenSearchConfig | None = None
    """Where the knowledge bases without a path are searched."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""

    rewriter: RewriterConfig | None = None
    content: ContentConfig | None = None
    rerankers: dict[Name, Path] = {}
    """A tenant's fitted reranker; a tenant without one gets scores that are not calibrated."""


def read_reranker_option(text: str) -> tuple[str, str]:
    """`tenant=path`."""
    tenant, equals, path = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"--reranker {text}: write TENANT=PATH.")
    return tenant, path
