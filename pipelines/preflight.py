"""What can be seen before the first paid call: the sheet's own contradictions, and who the RAG service serves."""

import os
from collections.abc import Sequence
from pathlib import Path

from pipelines.config import RunConfig
from pipelines.lines import REWRITER
from pipelines.rundir import NAMES, RunDir
from qinglan.config import load_yaml
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.gpus import need_gpus
from qinglan.lineage.digests import digest
from qinglan.prompts import template
from qinglan.questions import read_questions
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH
from qinglan.rag.index import read_knowledge_base
from qinglan.rows import Quarantined, Split


def check_given(config: RunConfig) -> None:
    """Both files are there, and the knowledge base's first line is a passage."""
    for name, path in (("questions", config.questions), ("knowledge-base", config.knowledge_base)):
        if path is None or not path.exists() or (name == "questions" and not path.is_file()):
            raise ConfigError(
                f"--{name} {f'{path}: no such file' if path else 'is missing'}. Give yours, "
                "or make a sample with `qinglan sample TENANT --out DIR`."
            )
    bases = knowledge_bases(config)
    if not bases:
        raise ConfigError(f"--knowledge-base {config.knowledge_base}: holds no <tenant>.jsonl.")
    for path in bases.values():
        try:
            next(read_knowledge_base(path))
        except DataError as error:
            raise DataError(
                f"--knowledge-base {error} A line is one passage: id, title, content, metadata."
            ) from None


def check_machine(config: RunConfig, stages: Sequence[str]) -> None:
    """The GPUs that the trainings want are here; a data line would be paid for in vain without them."""
    if "sft" in stages and config.sft.device != "cpu":
        need_gpus("sft", config.sft.gpus)
    if "ppo" in stages and config.ppo.hardware.device != "cpu" and "RAY_ADDRESS" not in os.environ:
        need_gpus("ppo", config.ppo.hardware.per_node)


def check_questions(config: RunConfig) -> set[str]:
    """The sheet's tenants; an error for what would end the run only after money is spent."""
    assert config.questions is not None
    tenants: set[str] = set()
    splits: dict[tuple[str, str], tuple[Split, str]] = {}
    trains = False
    unfit: list[Quarantined] = []
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if isinstance(row, Quarantined):
            unfit.append(row)
            continue
        tenants.add(row.tenant_id)
        trains = trains or row.split in ("train", None)
        if row.split:
            split, first = splits.setdefault((row.tenant_id, row.conversation_id), (row.split, row.id))
            if split != row.split:
                raise DataError(
                    f"{config.questions}: conversation {row.conversation_id!r} is in {split!r} (row {first!r}) and "
                    f"in {row.split!r} (row {row.id!r}). Turns of one conversation stay together: mend the sheet."
                )
    if not tenants:
        raise DataError(
            f"{config.questions}: none of {len(unfit)} rows is a question. The first, {unfit[0].where}: "
            f"{unfit[0].detail} Is the column of questions named under generate.columns in the profile?"
        )
    if not trains:
        raise DataError(
            f"{config.questions}: no row is for training. Write train into {config.generate.columns.split} of some "
            "conversations, or leave the column out, and conversations are drawn."
        )
    for tenant in sorted(tenants):
        config.generate.system_prompt or template(f"teacher.{tenant}")
        config.convert.system_prompt or template(f"student.{tenant}")
    return tenants


def check_served(gateway_url: str, tenants: set[str], kb_name: str) -> None:
    """Every tenant's knowledge base is served, as far as the RAG service tells."""
    import httpx

    answer = httpx.get(f"{gateway_url}{KNOWLEDGE_BASES_PATH}", timeout=300, trust_env=False)
    if answer.status_code >= 500:
        raise OutageError(f"{answer.json().get('msg', answer.text)} Nothing was paid for.")
    if answer.status_code != 200:
        return  # an older service does not tell
    served = {(base["tenant_id"], base["kb_name"]) for base in answer.json()["knowledge_bases"]}
    if missing := sorted(f"{tenant}/{kb_name}" for tenant in tenants if (tenant, kb_name) not in served):
        raise ConfigError(
            f"The RAG service does not serve {', '.join(missing)}; it serves "
            f"{', '.join('/'.join(base) for base in sorted(served))}. Serve it (for several tenants, "
            "--knowledge-base is a folder of <tenant>.jsonl), or take those rows out. Nothing was paid for."
        )


def own_files(config: RunConfig, run: RunDir, only: str) -> RunConfig:
    """A stage alone works on the run's own sheet and knowledge base; another's would tell a false story."""
    _check_tenant(config, run)
    changes: dict[str, Path] = {}
    needed = [name for name in REWRITER.thread.get(only, ()) if name not in REWRITER.given]
    if needed:
        for name in needed:
            if not (run.files / NAMES[name]).exists():
                raise ConfigError(f"{run.root}: no {NAMES[name]} there. Run the stage before {only!r} first.")
        for name in ("questions", "knowledge_base"):
            mine = (run.files / NAMES[name]).resolve()
            given: Path | None = getattr(config, name)
            if given is not None and given.exists() and mine.exists() and digest(given) != digest(mine):
                raise ConfigError(
                    f"--{name.replace('_', '-')} {given}: {run.root} was made from other bytes. "
                    f"Leave it out to run {only!r} on the run's own, or run the whole line with --out another folder."
                )
            changes[name] = mine
    return config.model_copy(update=changes)


def _check_tenant(config: RunConfig, run: RunDir) -> None:
    if run.config.is_file() and (owner := load_yaml(run.config).get("tenant_id")) != config.tenant_id:
        raise ConfigError(f"{run.root} holds a run of tenant {owner!r}. Give --out another folder.")


def knowledge_bases(config: RunConfig) -> dict[str, Path]:
    """By tenant: a file is the run's tenant's, a folder holds <tenant>.jsonl for each."""
    assert config.knowledge_base is not None
    if config.knowledge_base.is_file():
        return {config.tenant_id: config.knowledge_base}
    return {path.stem: path for path in sorted(config.knowledge_base.glob("*.jsonl"))}
