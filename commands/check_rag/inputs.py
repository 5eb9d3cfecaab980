"""Service, questions and knowledge base for `qinglan check-rag`, from a profile and the command line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.data.convert.config import ConvertConfig
from pipelines.checks.rag.ask import ANY_QUESTION, training_questions
from pipelines.checks.rag.judge import KnownPassages
from pipelines.lines.config import load_config
from pipelines.lines.overrides import parse_overrides
from qinglan.config import merge_settings
from qinglan.errors import ConfigError
from qinglan.files.files import sha256_file
from qinglan.llm.config import RagUpstream
from qinglan.llm.host_allowlist import check_host
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.questions import Columns
from qinglan.rows.rows import Question


class CheckInputs(NamedTuple):
    """Service, questions and knowledge base."""

    service: RagUpstream
    retrieval: RetrievalConfig
    columns: Columns
    convert: ConvertConfig
    tenant: str
    questions: Path | None
    knowledge_base: Path | None
    starts_project_service: bool
    """True if the profile starts this project's RAG service; the settings that the check proposes then turn it
    off."""

    def with_questions(self, texts: Sequence[str]) -> Iterator[Question]:
        """Yield the command line's questions or, if it has none, the training questions of the sheet. Without a
        sheet, yield ANY_QUESTION."""
        if texts or self.questions is None:
            for number, text in enumerate(texts or [ANY_QUESTION], 1):
                if not text.strip():
                    raise ConfigError("--question: an empty one cannot be asked. Write a user's question.")
                name = f"question-{number}"
                yield Question(id=name, tenant_id=self.tenant, conversation_id=name, question=text)
            return
        yield from training_questions(self.questions, self.columns, self.tenant, self.convert)

    def passages(self) -> KnownPassages | None:
        path = self.knowledge_base
        if path is None:
            return None
        file = path / f"{self.tenant}.jsonl" if path.is_dir() else path
        passages = [*read_knowledge_base(file)]
        ids, texts = {passage.id for passage in passages}, {passage.content for passage in passages}
        return KnownPassages(ids, sha256_file(file), texts)


def read_inputs(
    url: str, tenant: str, profile: str, questions: Path | None, knowledge_base: Path | None, path: str,
    headers: Sequence[str], options: Sequence[str],
) -> CheckInputs:  # fmt: skip
    """Read the inputs from the profile; options of the command line override it. The host of a service that only the
    profile names must be on the allowlist."""
    options_of_service = {"base_url": url, "path": path, "headers": dict(map(parse_header, headers))}
    overrides = parse_overrides(options)

    def service(settings: dict[str, Any]) -> RagUpstream:
        named = {name: value for name, value in options_of_service.items() if value}
        return RagUpstream.parse(merge_settings(settings, named), "check-rag")

    if profile:
        config = load_config(tenant, profile, **overrides)
        if not url:
            check_host(config.gateway.rag.base_url, "gateway.rag.base_url")
        return CheckInputs(
            service(config.gateway.rag.model_dump()), config.retrieval, config.generate.columns, config.convert,
            tenant, questions or config.questions, knowledge_base or config.knowledge_base, config.stand_ins.rag,
        )  # fmt: skip
    if not url:
        raise ConfigError("Give the address of the service, or a tenant with --profile that names it.")
    retrieval = RetrievalConfig.parse(overrides.get("retrieval", {}), "check-rag")
    columns = Columns.parse(overrides.get("generate", {}).get("columns", {}), "check-rag")
    return CheckInputs(
        service(overrides.get("gateway", {}).get("rag", {})), retrieval, columns, ConvertConfig(),
        tenant or "default", questions, knowledge_base, False,
    )  # fmt: skip


def parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip() and value.strip()):
        raise ConfigError(f"--header {text}: write it as 'NAME: VALUE'.")
    return name.strip(), value.strip()
