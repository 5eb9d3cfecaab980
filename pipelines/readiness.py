"""Everything that a run waits for, named before anything is paid: files, models, GPUs, hosts, keys, RAG service."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from pipelines.execution import check_deploys, check_machine, check_tracking
from pipelines.preflight import input_file_problems, model_problems
from pipelines.rewriter import REWRITER, RunConfig
from qinglan.addresses import called_addresses
from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.llm.config import PaidModel, RagUpstream, check_currency
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE, disallowed_host
from qinglan.llm.upstream import read_api_key
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH

RAG_SECONDS = 5.0
"""Time for the RAG service's list of knowledge bases."""


def missing_for_run(config: RunConfig, stages: Sequence[str]) -> list[QinglanError]:
    """Collect all that a run of these stages waits for on this machine; the only request goes to the RAG service."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_currency(config.gateway),
        lambda: check_deploys(config, stages),
        lambda: check_machine(REWRITER, config, stages),
        lambda: check_tracking(REWRITER, config, stages, config.gateway.mlflow is not None),
    )
    missing = [*input_file_problems(config), *filter(None, map(problem_of, checks))]
    missing += model_problems(config, stages)
    missing += disallowed_hosts(stage_addresses(config, stages))
    if REWRITER.gateway & set(stages):
        roles = ("teacher", "judge", *(["examiner"] if "evaluate" in stages else []))
        missing += missing_services(config, roles, rag=True)
    return missing


def stage_addresses(config: RunConfig, stages: Sequence[str]) -> dict[str, str]:
    """Addresses that these stages call themselves, without the gateway."""
    settings = config.model_dump(mode="json")
    return called_addresses({stage: settings[stage] for stage in stages if stage in settings}, "")


def missing_services(config: RunConfig, roles: Sequence[str], rag: bool) -> Iterator[QinglanError]:
    """Name hosts that may not be called, keys that are not set, and a RAG service that is not there."""
    models = {str(role): model for role, model in config.gateway.models().items() if role in roles and config.pays}
    addresses = {f"{role}.base_url": model.base_url for role, model in models.items()}
    if rag and not config.stand_ins.rag:
        addresses["rag.base_url"] = config.gateway.rag.base_url
    yield from disallowed_hosts(addresses)
    yield from missing_keys(models)
    url = addresses.get("rag.base_url", "")
    if url and not any(disallowed_hosts({"rag.base_url": url})) and (problem := rag_problem(url)):
        yield problem


def disallowed_hosts(addresses: Mapping[str, str]) -> Iterator[ConfigError]:
    """Name all hosts that the operator's allowlist lacks, and the value that has them; a wrong address by itself."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for where, url in addresses.items():
        try:
            if host := disallowed_host(url, where):
                lacking[host].append(where)
        except ConfigError as error:
            yield error
    if lacking:
        named = ", ".join(f"host {host!r} ({', '.join(where)})" for host, where in lacking.items())
        value = ",".join(filter(None, (os.environ.get(ALLOWED_VARIABLE, "").strip(","), *lacking)))
        yield ConfigError(f"Not allowed: {named}. If that is meant, the operator sets {ALLOWED_VARIABLE}={value}")


def missing_keys(models: Mapping[str, PaidModel]) -> Iterator[ConfigError]:
    """Name each environment variable without a key once, and the models that it is for."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for name, model in models.items():
        if problem_of(lambda model=model, name=name: read_api_key(model, name)):  # type: ignore[misc]
            lacking[model.api_key_env].append(f"{name} at {model.base_url}")
    for variable, users in lacking.items():
        yield ConfigError(f"No key for {', '.join(users)}. Set the environment variable {variable}.")


def rag_problem(url: str) -> QinglanError | None:
    """The error if no RAG service answers at an allowed address; any answer will do, since old ones list nothing."""
    import httpx

    try:
        httpx.get(f"{url.rstrip('/')}{KNOWLEDGE_BASES_PATH}", timeout=RAG_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        unnamed = ", where the profile names none" if url == RagUpstream().base_url else ""
        problem = OutageError(
            f"RAG service {url} (gateway.rag.base_url{unnamed}): no answer ({type(error).__name__}). "
            "Start it, or give the profile the address of yours. Nothing was paid for."
        )
        problem.__cause__ = error
        return problem
    return None


def problem_of(check: Callable[[], object]) -> QinglanError | None:
    try:
        check()
    except QinglanError as error:
        return error
    return None
