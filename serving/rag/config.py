"""Settings of one RAG service: its address, knowledge bases, rewriter, content check and engines."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Positive, parse_as
from qinglan.errors import ConfigError
from qinglan.http.addresses import Address
from qinglan.rag.as_asked import AS_ASKED
from qinglan.rewriter.card import read_card
from serving.rag.opensearch_connection import OpenSearchConfig
from serving.rag.url_checks import refuse_credentials

NO_CREDENTIALS_HINT = "It is asked without."


class KnowledgeBaseSource(Config):
    """Knowledge base of one tenant."""

    tenant_id: Name
    kb_name: Name = "default"
    path: Path | None = None
    """JSONL file with a passage per line: id, title, content, metadata. None if the passages are in OpenSearch."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse `tenant`, `tenant/kb`, `tenant=path` or `tenant/kb=path`."""
        name, equals, path = text.partition("=")
        tenant, slash, kb = name.partition("/")
        if equals and not path:
            raise ConfigError(f"--kb {text}: write tenant=PATH or tenant/kb=PATH.")
        values = {"tenant_id": tenant, "path": path or None, **({"kb_name": kb} if slash else {})}
        return parse_as(cls, values, f"--kb {text}")


class RewriterConfig(Config):
    """Deployed rewriter, for requests without a rewritten query."""

    kind: Literal["kserve", "openai"] = "kserve"
    """Protocol: `kserve` (V1) or `openai` (chat completions with the student's prompt)."""

    url: Address
    """Base URL, without a path for `kserve`, with /v1 for `openai`."""

    model: str = "rewriter"
    deadline_seconds: float = Field(default=3.0, gt=0)
    """Longest wait for a rewrite in seconds; after it the plain query is searched. The usual wait is shorter: twice
    the 95th percentile of the rewriter's recent times, but at least one second."""

    cached_rewrites: int = Field(default=10_000, ge=0)
    """Highest number of cached rewrites of the current model version; 0 disables the cache."""

    as_asked: Fraction = AS_ASKED
    """Lowest score of the first passage for the original question at which the question is searched without a
    rewrite. It must equal `evaluate.as_asked` of the run that evaluated the rewriter. 0 rewrites every question."""

    max_tokens: Positive = 64

    system_prompts: dict[str, str] = {}
    """System prompts by tenant for `openai`, from the model's card; other tenants use a file in qinglan/prompts."""

    @classmethod
    def read(cls, text: str, model: Path | None = None, **chosen: Any) -> Self | None:
        """Parse `URL`, `kserve=URL` or `openai=URL`, and the settings in `chosen` that are not None.

        Returns None without a rewriter. The prompts of an `openai` rewriter are read from the card in the model's
        folder.
        """
        values = {name: value for name, value in chosen.items() if value is not None}
        if not text:
            if model is not None or values:
                raise ConfigError(
                    "--rewriter-model, --rewriter-deadline, --rewrite-cache, --as-asked: give --rewriter URL, too."
                )
            return None
        refuse_credentials("--rewriter", text, NO_CREDENTIALS_HINT)
        kind, equals, url = text.partition("=")
        values |= {"kind": kind, "url": url} if equals and not kind.startswith("http") else {"url": text}
        if model is not None:
            if values.get("kind") != "openai":
                raise ConfigError("--rewriter-model: a KServe rewriter knows its prompts; give it with openai=URL.")
            values["system_prompts"] = read_card(model).system_prompts
        return parse_as(cls, values, f"--rewriter {text}")


class ContentConfig(Config):
    """Style service that checks outgoing answers, and the thresholds from which an answer is flagged."""

    url: Address
    """Base URL without a path of a service with KServe's V1 protocol and the model `style`."""

    deadline_seconds: float = Field(default=0.5, gt=0)
    """Time limit of a check in seconds, short because the user waits. After it, the answer counts as not checked."""

    label: str = "无伤害"
    """Label of the answer style that sensitive questions require."""

    called_for_threshold: Fraction = 0.5
    """Lowest probability of `label` for a question with an empty answer at which its answer must have this style; 0
    requires the style for every question."""

    harmless_threshold: Fraction = 0.5
    """Probability of `label` below which an answer lacks the style."""

    @classmethod
    def read(cls, url: str, chosen: Mapping[str, Any]) -> Self | None:
        """Parse --style and its options. Returns None without --style."""
        if not url and chosen:
            raise ConfigError(f"{', '.join(chosen)}: means nothing without --style URL.")
        refuse_credentials("--style", url, NO_CREDENTIALS_HINT)
        return parse_as(cls, {"url": url, **chosen}, f"--style {url}") if url else None


class RerankServiceConfig(Config):
    """Reranker service over HTTP. If it fails, local scores replace its scores, and the answer states the reason."""

    kind: Literal["vllm", "tei"]
    """Protocol: `vllm` (/v1/rerank, also of Jina and Cohere) or `tei` (/rerank of Text Embeddings Inference)."""

    url: Address
    """Base URL without a path."""

    model: str = Field(min_length=1, max_length=200)
    """Name of the model as vLLM serves it or as TEI's /info reports it; scores of another model are refused."""

    deadline_seconds: float = Field(default=1.0, gt=0)
    """Time limit in seconds to score all passages of one text."""

    batch: Positive = 32
    """Highest number of passages in one request; for `tei` also limited by the number in its /info."""

    concurrency: Positive = 8
    """Highest number of requests at the same time, for all callers together."""

    @property
    def scorer(self) -> str:
        """JSON of the settings that change the scores. The address is left out, because a service may move."""
        return self.model_dump_json(include={"kind", "model"})

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse `vllm=URL,model=NAME` or `tei=URL,model=NAME`, and any other field as `,name=value`."""
        but_the_model = re.sub(r",model=[^,]*", "", text)
        refuse_credentials(
            "--reranker-service", but_the_model, "Set QINGLAN_RERANKER_API_KEY where it requires a key."
        )
        (kind, _, url), *settings = (part.partition("=") for part in text.split(","))
        values = {"kind": kind, "url": url, **{name: value for name, _, value in settings}}
        return parse_as(cls, values, f"--reranker-service {text}")


class RagConfig(Config):
    """Settings of one RAG service."""

    knowledge_bases: tuple[KnowledgeBaseSource, ...] = Field(min_length=1)
    index_root: Path = Path("runs/index")
    """Folder of the indexes, by tenant, knowledge base and digest; missing indexes are built."""

    opensearch: OpenSearchConfig | None = None
    """OpenSearch cluster that searches the knowledge bases without a `path`."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """Port; 0 takes a free port."""

    rewriter: RewriterConfig | None = None
    content: ContentConfig | None = None
    rerankers: dict[Name, Path] = {}
    """File of the fitted reranker by tenant; a tenant without a file gets uncalibrated scores."""

    reranker_service: RerankServiceConfig | None = None


def read_reranker_option(text: str) -> tuple[str, str]:
    tenant, _, path = text.partition("=")
    if not path:
        raise ConfigError(f"--reranker {text}: write TENANT=PATH.")
    return tenant, path
