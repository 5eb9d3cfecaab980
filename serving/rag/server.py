"""Run the RAG service: open the indexes, print the address, serve until SIGTERM, and finish requests under way."""

import logging
import sys
from argparse import Namespace

import uvicorn

from qinglan.errors import ConfigError
from qinglan.prompts import prompt_file
from qinglan.rag.lexical.index import Index, build_index
from qinglan.terminal import say_json
from serving.http_server import listen, server_config
from serving.rag.app import Engines, create_app
from serving.rag.config import (
    ContentConfig,
    KnowledgeBaseSource,
    RagConfig,
    RerankServiceConfig,
    RewriterConfig,
    read_reranker_option,
)
from serving.rag.content_check import ContentChecker
from serving.rag.engine import Engine, TantivyEngine
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.engine import AliasEngine
from serving.rag.opensearch_connection import OpenSearchConfig
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER, RerankerModel, read_reranker
from serving.rag.reranker_client import RerankerClient
from serving.rag.rewriter_client import RewriterClient

DRAIN_SECONDS = 10

log = logging.getLogger("serving.rag")


def serve_knowledge_bases(options: Namespace) -> None:
    """Serve with the options of the command line."""
    rewriter = RewriterConfig.read(
        options.rewriter,
        options.rewriter_model,
        deadline_seconds=options.rewriter_deadline,
        cached_rewrites=options.rewrite_cache,
        as_asked=options.as_asked,
    )
    service = options.reranker_service
    # An option of the content check that is absent has the default of ContentConfig.
    content = {name: value for name, value in vars(options).items() if name in ContentConfig.model_fields}
    values = {
        "knowledge_bases": [KnowledgeBaseSource.read(text) for text in options.kb],
        "opensearch": OpenSearchConfig.read(options.opensearch, options.opensearch_deadline),
        "host": options.host,
        "port": options.port,
        "rewriter": rewriter,
        "content": ContentConfig.read(options.style, content),
        "rerankers": dict(read_reranker_option(text) for text in options.reranker),
        "reranker_service": RerankServiceConfig.read(service) if service else None,
    }
    root = {"index_root": options.index_root} if options.index_root else {}
    serve(RagConfig.parse(values | root, "RAG service"))


def serve(config: RagConfig) -> None:
    """Serve until SIGTERM. Print the address as one line of JSON once connections are accepted."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    cluster = ClusterClient(config.opensearch) if config.opensearch else None
    service = RerankerClient(config.reranker_service) if config.reranker_service else None
    checker = ContentChecker(config.content) if config.content else None
    app = create_app(open_engines(config, cluster), open_rewriter(config), checker, service, cluster)
    listening = listen(config.host, config.port)
    say_json({"rag": f"http://{config.host}:{listening.getsockname()[1]}"})
    server = uvicorn.Server(server_config(app, timeout_graceful_shutdown=DRAIN_SECONDS))
    server.run(sockets=[listening])


def open_engines(config: RagConfig, cluster: ClusterClient | None = None) -> Engines:
    """Open an engine for each knowledge base; build missing local indexes.

    Raises a ConfigError if a reranker's tenant has no knowledge base, or if a knowledge base is named twice.
    """
    strangers = config.rerankers.keys() - {source.tenant_id for source in config.knowledge_bases}
    if strangers:
        raise ConfigError(f"reranker: tenant {min(strangers)!r} has no knowledge base here. Add it, or leave it out.")
    engines: dict[tuple[str, str], Engine] = {}
    for source in config.knowledge_bases:
        key, name = (source.tenant_id, source.kb_name), f"{source.tenant_id}/{source.kb_name}"
        if key in engines:
            raise ConfigError(f"--kb {name}: given twice. Name each once.")
        fitted = config.rerankers.get(source.tenant_id)
        reranker = read_reranker(fitted) if fitted else DEFAULT_RERANKER
        engines[key] = _open_engine(source, name, config, cluster, reranker)
        if not engines[key].calibrated:
            log.warning(
                "%s: no reranker fitted to this tenant: its scores order passages, but are uncalibrated", name
            )
    return engines


def open_rewriter(config: RagConfig) -> RewriterClient | None:
    """Create the client of the configured rewriter, or None. Raises a ConfigError if a tenant's prompt is missing."""
    if config.rewriter is None:
        return None
    if config.rewriter.kind == "openai":
        for source in config.knowledge_bases:
            prompt = f"student.{source.tenant_id}"
            if source.tenant_id not in config.rewriter.system_prompts and not prompt_file(prompt).is_file():
                raise ConfigError(
                    f"--rewriter {config.rewriter.url}: no prompt {prompt} for its questions. Give the folder of the "
                    "model that it serves as --rewriter-model."
                )
    return RewriterClient(config.rewriter)


def _open_engine(
    source: KnowledgeBaseSource, name: str, config: RagConfig, cluster: ClusterClient | None, reranker: RerankerModel
) -> Engine:
    if source.path is not None:
        index = Index.open(build_index(source.path, config.index_root, source.tenant_id, source.kb_name))
        log.info("%s: %d passages, snapshot %s", name, len(index), index.snapshot[:12])
        return TantivyEngine(index, reranker)
    if cluster is None:
        raise ConfigError(f"--kb {name}: give its file, {name}=PATH, or --opensearch URL where it was loaded.")
    return AliasEngine(cluster, source.tenant_id, source.kb_name, reranker)
