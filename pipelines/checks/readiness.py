"""Everything that a run lacks, named before anything is paid: files, models, GPUs, hosts, keys, RAG service."""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pipelines.checks.preflight import input_file_problems, model_problems
from pipelines.checks.rag_probe import RagProbe, probe_rag
from pipelines.execute.execution import check_deploys, check_machine, check_tracking
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.errors import ConfigError, DataError, QinglanError
from qinglan.http.addresses import called_addresses
from qinglan.llm.config import PaidModel, check_currency
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE, disallowed_host, is_local
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question


class Readiness(NamedTuple):
    """Everything that a run still lacks, and what is known of its RAG service."""

    by_subject: dict[str, list[QinglanError]]
    """Problems by subject, such as `keys`; a subject that was checked and has no problem has an empty list."""

    rag: RagProbe

    @property
    def missing(self) -> list[QinglanError]:
        return [problem for problems in self.by_subject.values() for problem in problems]


def check_readiness(config: RunConfig, stages: Sequence[str]) -> Readiness:
    """Collect everything that a run of these stages lacks on this machine. Only the RAG service is called."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_currency(config.gateway),
        lambda: check_deploys(config, stages),
        lambda: check_machine(REWRITER, config, stages),
        lambda: check_tracking(REWRITER, config, stages, config.gateway.mlflow is not None),
    )
    settings = config.model_dump(mode="json")
    called = {stage: settings[stage] for stage in stages if stage in settings}  # without the gateway
    problems: dict[str, list[QinglanError]] = {
        "files": [*input_file_problems(config)],
        "settings": [*filter(None, map(problem_of, checks))],
        "weights": [*model_problems(config, stages)],
        "hosts": [*disallowed_hosts(called_addresses(called, ""))],
    }
    if not REWRITER.gateway & set(stages):
        return Readiness(problems, RagProbe())
    roles = ("teacher", "judge", *(["examiner"] if asks_examiner(config, stages) else []))
    problems["hosts"] += disallowed_hosts(gateway_addresses(config, roles, rag=True))
    problems["keys"] = [*missing_keys(called_models(config, roles))]
    rag, url = RagProbe(snapshot=True if config.stand_ins.rag else None), config.gateway.rag.base_url
    if not config.stand_ins.rag and not any(disallowed_hosts({"rag.base_url": url})):
        rag = probe_rag(config)
    problems["RAG"] = [rag.problem] if rag.problem else []
    return Readiness(problems, rag)


def asks_examiner(config: RunConfig, stages: Collection[str]) -> bool:
    """Tell if the examiner is asked: it scores in the evaluation, and confirms labels of rows without gold."""
    return "evaluate" in stages or ("label" in stages and config.label.calls > 0 and lacks_gold(config))


def lacks_gold(config: RunConfig) -> bool:
    """Tell if a row of the sheet names no gold passage; a sheet that cannot be read is reported elsewhere."""
    if config.questions is None:
        return False
    rows = read_questions(config.questions, config.generate.columns, config.tenant_id)
    with suppress(DataError):
        return any(isinstance(row, Question) and not row.gold for row in rows)
    return False


def missing_keys_and_hosts(config: RunConfig, roles: Sequence[str]) -> Iterator[QinglanError]:
    """Yield errors for hosts of paid models that may not be called, and for keys that are not set."""
    yield from disallowed_hosts(gateway_addresses(config, roles, rag=False))
    yield from missing_keys(called_models(config, roles))


def called_models(config: RunConfig, roles: Sequence[str]) -> dict[str, PaidModel]:
    return {str(role): model for role, model in config.gateway.models().items() if role in roles and config.pays}


def gateway_addresses(config: RunConfig, roles: Sequence[str], rag: bool) -> dict[str, str]:
    addresses = {f"{role}.base_url": model.base_url for role, model in called_models(config, roles).items()}
    return addresses | ({"rag.base_url": config.gateway.rag.base_url} if rag and not config.stand_ins.rag else {})


def disallowed_hosts(addresses: Mapping[str, str]) -> Iterator[ConfigError]:
    """Yield one error for all hosts that the allowlist lacks, and one for each wrong address."""
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
    """Yield an error for each environment variable that holds no key, with the models that need it."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for name, model in models.items():
        try:
            model.read_key(name)
        except ConfigError:
            lacking[model.api_key_env].append(f"{name} at {model.base_url}")
    for variable, users in lacking.items():
        yield ConfigError(f"No key for {', '.join(users)}. Set the environment variable {variable}.")


def unset_local_keys(models: Mapping[str, PaidModel]) -> Iterator[tuple[str, str]]:
    """Yield each key variable that the profile names for a service on this machine and that is not set, with its
    models. The run goes on: most such services need no key, but a proxy such as LiteLLM may ask for one."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for name, model in models.items():
        named = "api_key_env" in model.model_fields_set
        if named and is_local(model.base_url) and not os.environ.get(model.api_key_env, "").strip():
            lacking[model.api_key_env].append(f"{name} at {model.base_url}")
    for variable, users in lacking.items():
        yield variable, ", ".join(users)


def problem_of(check: Callable[[], object]) -> QinglanError | None:
    try:
        check()
    except QinglanError as error:
        return error
    return None
