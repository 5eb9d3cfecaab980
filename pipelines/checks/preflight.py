"""Checks before the first paid call: files, machine, labels, and what the RAG service serves."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.evaluation.rewriter.gate_precheck import Obstacle
from components.training.sft.model_family import with_family
from pipelines.checks.promotion import too_few_rows
from pipelines.execute.execution import check_stage_inputs, recorded_inputs, refuse_foreign_folder
from pipelines.execute.recorded_config import check_line
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import Sheet, UnknownGold, longest_prompt, unknown_gold
from qinglan.config import load_yaml
from qinglan.errors import ConfigError, DataError, OutageError, QinglanError
from qinglan.files.digests import digest
from qinglan.files.files import read_jsonl
from qinglan.files.input_paths import path_fault
from qinglan.models.base_weights import WEIGHTS_VARIABLE, local_model_folder
from qinglan.prompts import Message
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, Passage
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.rewriter.base_check import find_critic, refuse_other_vocabulary, refuse_unfit_base
from qinglan.rewriter.model import load_tokenizer, render_prompt

A_PASSAGE = (
    "A line is one passage: id, title, content, metadata. Only id and content must be there, in UTF-8: "
    '{"id": "k1", "title": "...", "content": "...", "metadata": {}}'
)
GIVE_INPUT = "Give yours, or make a sample with `qinglan sample TENANT --out DIR`."
FIRST_BYTES, SHOWN = 4096, 5
MANY_REPEATED = 0.2
"""Share of training rows that nearly repeat rows of dev or test, above which the run warns."""


def input_file_problems(config: RunConfig) -> Iterator[QinglanError]:
    """Yield an error for every input file that is missing or unusable."""
    files = {"questions": config.questions, "knowledge-base": config.knowledge_base}
    for name, path in files.items():
        if path is None:
            yield ConfigError(
                f"--{name} is missing. Give yours, or make a sample with `qinglan sample TENANT --out DIR`."
            )
        elif fault := path_fault(path, GIVE_INPUT, folder=name == "knowledge-base"):
            yield ConfigError(f"--{name} {fault}")
        elif name == "knowledge-base":
            yield from knowledge_base_problems(config)


def knowledge_base_problems(config: RunConfig) -> Iterator[QinglanError]:
    """Yield an error for every file with a line that is no passage; the error names the line and the right format."""
    bases = knowledge_bases(config)
    if not bases:
        yield ConfigError(
            f"--knowledge-base {config.knowledge_base}: holds no <tenant>.jsonl. Give a .jsonl file of passages, or "
            f"a folder of them; `qinglan init TENANT SHEET --knowledge-base {config.knowledge_base}` makes passages "
            "of documents."
        )
    for path in bases.values():
        if format_ := foreign_format(path):
            yield DataError(f"--knowledge-base {path}: {format_} {A_PASSAGE}")
            continue
        try:
            deque(read_knowledge_base(path), maxlen=0)
        except DataError as error:
            problem = DataError(f"--knowledge-base {str(error).rstrip('.')}. {A_PASSAGE}")
            problem.__cause__ = error
            yield problem


def raise_together(
    problems: Sequence[QinglanError],
    kind: type[QinglanError] = ConfigError,
    heading: str = "The run waits for this, and nothing was paid:",
) -> None:
    """Raise a single problem as it is, and several problems as one error with a line for each."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = (f"{'  ' if at else '- '}{line}" for problem in problems for at, line in enumerate(problem.lines))
        raise kind(heading, *lines)


def model_problems(config: RunConfig, stages: Sequence[str]) -> Iterator[QinglanError]:
    """Yield an error if the base or the critic is unfit: incomplete, without a chat template, or with another
    vocabulary.

    A base that the base stage will download is checked in that stage.
    """
    base = local_model_folder(config.base.model) if config.base.source == "hub" else None
    try:
        if base and "base" in stages:
            refuse_unfit_base(base)
            messages: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
            # A ConfigError if training could not render prompts as the base's own template does.
            with_family(config.sft, base, render_prompt(load_tokenizer(base), messages), messages)
    except QinglanError as error:
        yield error
        base = None  # no vocabulary to compare with
    try:
        if "ppo" in stages and config.ppo.critic_model:
            critic = find_critic(config.ppo.critic_model)
            if base:
                refuse_other_vocabulary(critic, base)
    except QinglanError as error:
        yield error


def base_warnings(config: RunConfig, stages: Sequence[str]) -> list[str]:
    """Warn of a base that is not on this machine and is downloaded only after the paid stages."""
    model = config.base.model
    if "base" not in stages or config.base.source != "hub" or local_model_folder(model):
        return []
    weights = os.environ.get(WEIGHTS_VARIABLE)
    folder = weights or "FOLDER"
    download = f"`hf download {model} --local-dir {Path(folder) / model}`"
    first = download if weights else f"{download} and set {WEIGHTS_VARIABLE}={folder}"
    return [
        f"base.model {model} is not in {WEIGHTS_VARIABLE} ({weights or 'not set'}): the base stage will download it "
        f"after the paid stages. Put it there first ({first}), or be sure that this machine reaches the hub."
    ]


def long_row_warnings(config: RunConfig, sheet: Sheet, stages: Sequence[str]) -> list[str]:
    """Warn of rows that SFT leaves out after they were paid for, and of long histories; tokens are an estimate."""
    if "sft" not in stages:
        return []
    warnings = []
    if sheet.too_long:
        named = "; ".join(sheet.too_long[:SHOWN])
        warnings.append(
            f"{len(sheet.too_long):,} rows may have more tokens without any history than sft.max_length "
            f"{config.sft.max_length:,} ({named}): SFT leaves them out, though the teacher is paid for them. Raise "
            "sft.max_length and ppo.max_prompt_tokens, or shorten their question or profile."
        )
    if sheet.long_history:
        named = "; ".join(sheet.long_history[:SHOWN])
        warnings.append(
            f"{len(sheet.long_history):,} rows may have more than {longest_prompt(config):,} tokens ({named}): the "
            "oldest turns of their history are left out, in training as in serving. Raise sft.max_length and "
            "ppo.max_prompt_tokens to show more."
        )
    return warnings


def repeated_row_warnings(config: RunConfig, sheet: Sheet, stages: Sequence[str]) -> list[str]:
    """Warn if convert will leave out many training rows; if too few remain for a stage, the run is refused."""
    rows, left = sheet.splits["train"], sheet.left[0]["train"]
    repeated = rows - left
    if "convert" not in stages or repeated < MANY_REPEATED * rows or any(too_few_rows(config, sheet, stages)):
        return []
    return [
        f"{repeated:,} of {rows:,} training rows nearly repeat a row of dev or test, and convert leaves them out: "
        f"{left:,} are left at most. Bring more different questions."
    ]


def whole_run_warnings(config: RunConfig, sheet: Sheet, stages: Sequence[str]) -> list[str]:
    """If this run ends early, warn of problems of the sheet for which a whole run would be refused."""
    if next(iter(REWRITER.stages)) not in stages:
        return []
    now = [*too_few_rows(config, sheet, stages)]
    later = (fault for fault in too_few_rows(config, sheet, REWRITER.until(REWRITER.last)) if fault not in now)
    return [
        f"A run of all stages would be refused for this sheet: {fault.reason} {fault.next_step}" for fault in later
    ]


def foreign_format(path: Path) -> str:
    """Describe the format of a file that is not JSONL, from its first bytes; empty if it may be JSONL."""
    with path.open("rb") as file:
        beginning = file.read(FIRST_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = beginning.split(b"\n", 1)[0].strip()
    # Local file header of a zip archive, which .xlsx and .docx are.
    if beginning.startswith(b"PK\x03\x04"):
        return "this is a spreadsheet or another zip file."
    if beginning.startswith(b"["):
        return "this is one JSON list. `jq -c '.[]' LIST.json > knowledge_base.jsonl` writes its elements as lines."
    if beginning and not beginning.startswith(b"{"):
        return f"this is CSV or other text; it begins with {line[:40].decode('utf-8', 'replace')!r}."
    if b"\n" in beginning and line in (b"{", b"{}"):
        return "this is JSON over several lines. `jq -c . FILE > knowledge_base.jsonl` writes each object as a line."
    return ""


def check_sheet(config: RunConfig, sheet: Sheet, stages: Sequence[str]) -> None:
    """Raise a DataError if the sheet has too few rows for these stages, or gold that no knowledge base has."""
    known = known_gold(config, sheet) if config.knowledge_base else {}
    raise_refusals(sheet_refusals(config, sheet, known, stages))


def sheet_refusals(
    config: RunConfig, sheet: Sheet, existing_gold: dict[str, set[str]], stages: Sequence[str]
) -> tuple[Obstacle, ...]:
    """Find reasons in sheet and knowledge base why these stages would be refused before anything is paid."""
    asks = REWRITER.gateway & set(stages)
    return (
        *(missing_gold(config, sheet, existing_gold) if config.knowledge_base else ()),
        *(without_knowledge_base(config, sheet) if config.knowledge_base and asks else ()),
        *too_few_rows(config, sheet, stages),
    )


def raise_refusals(refusals: Sequence[Obstacle]) -> None:
    """Raise the reasons why a sheet cannot be run, if there are any."""
    raise_together([*map(refusal_error, refusals)], DataError, "The sheet cannot be run, and nothing was paid:")


def refusal_error(refusal: Obstacle) -> DataError:
    return DataError(f"{refusal.reason} {refusal.next_step}")


def missing_gold(config: RunConfig, sheet: Sheet, existing_gold: dict[str, set[str]]) -> Iterator[Obstacle]:
    """Report rows whose gold passages are all missing; every retrieval for them would count as wrong."""
    lost = [row for row in unknown_gold(sheet.gold, existing_gold) if row.every]
    if lost:
        yield Obstacle(
            reason=f"{config.questions}: {len(lost):,} rows name gold passages that {config.knowledge_base} does not "
            f"have: {rows_in_words(lost)}.",
            next_step=f"Give the knowledge base that they were labelled on, or mend {config.generate.columns.gold}: "
            r"ids are separated by commas, and a comma inside an id is written as \,",
        )


def without_knowledge_base(config: RunConfig, sheet: Sheet) -> Iterator[Obstacle]:
    missing = sorted(sheet.tenants - knowledge_bases(config).keys())
    if missing and config.stand_ins.rag:
        yield Obstacle(
            reason=f"--knowledge-base {config.knowledge_base} holds nothing of {', '.join(missing)}.",
            next_step="Give a folder of <tenant>.jsonl with a file for each, or take those rows out.",
        )


def known_gold(config: RunConfig, sheet: Sheet) -> dict[str, set[str]]:
    """Collect the sheet's gold ids that exist in the knowledge bases, by tenant; files are read line by line."""
    existing_gold: dict[str, set[str]] = {}
    for tenant, path in knowledge_bases(config).items():
        named = {gold for row in sheet.gold if row.tenant_id == tenant for gold in row.gold}
        missing = set(named)
        for _, passage in read_jsonl(path, Passage) if named else ():
            missing.discard(passage.id)
            if not missing:
                break
        existing_gold[tenant] = named - missing
    return existing_gold


def rows_in_words(rows: Sequence[UnknownGold]) -> str:
    named = ", ".join(f"{row.row_id!r} ({', '.join(map(repr, row.ids[:SHOWN]))})" for row in rows[:SHOWN])
    return named + (f", and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else "")


def check_served(gateway_url: str, tenants: set[str], kb_name: str) -> None:
    """Check that the RAG service serves every tenant's knowledge base, if the service can list them."""
    from qinglan.http.http_client import outages, sync_client

    url = f"{gateway_url}{KNOWLEDGE_BASES_PATH}"
    with outages(url, "See the gateway's log. Nothing was paid for."), sync_client(timeout=300) as http:
        answer = http.get(url)
    if answer.status_code >= 500:
        raise OutageError(f"{answer.json().get('msg', answer.text)} Nothing was paid for.")
    if answer.status_code != 200:
        return  # an older service cannot list them
    served = {(base["tenant_id"], base["kb_name"]) for base in answer.json()["knowledge_bases"]}
    if missing := sorted(f"{tenant}/{kb_name}" for tenant in tenants if (tenant, kb_name) not in served):
        raise ConfigError(
            f"The RAG service does not serve {', '.join(missing)}; it serves "
            f"{', '.join('/'.join(base) for base in sorted(served))}. Serve it (for several tenants, "
            "--knowledge-base is a folder of <tenant>.jsonl), or take those rows out. Nothing was paid for."
        )


def with_run_files(config: RunConfig, run: RunDir, only: str) -> RunConfig:
    """Return the configuration with the sheet and knowledge base of the folder's run; other files are refused.

    With --only, the stage takes both from the run's folder.
    """
    refuse_foreign_folder(run)
    check_line(REWRITER, run)
    if run.config.is_file() and (owner := load_yaml(run.config).get("tenant_id")) != config.tenant_id:
        raise ConfigError(f"{run.root} holds a run of tenant {owner!r}. Give --out another folder.")
    changes: dict[str, Path] = {}
    if check_stage_inputs(REWRITER, run, only):
        for name in ("questions", "knowledge_base"):
            run_file = run.shown(name).resolve()
            named: Path | None = getattr(config, name)
            if named is not None and named.exists() and run_file.exists() and digest(named) != digest(run_file):
                raise ConfigError(
                    f"--{name.replace('_', '-')} {named}: {run.root} was made from other bytes. "
                    f"Leave it out to run {only!r} on the run's own, or run the whole line with --out another folder."
                )
            changes[name] = run_file
    else:
        changes = recorded_inputs(run, {"questions": config.questions, "knowledge_base": config.knowledge_base})
    return config.model_copy(update=changes)


def knowledge_bases(config: RunConfig) -> dict[str, Path]:
    """Map tenants to files: a single file belongs to the run's tenant, a folder holds <tenant>.jsonl files."""
    assert config.knowledge_base is not None
    if config.knowledge_base.is_file():
        return {config.tenant_id: config.knowledge_base}
    return {path.stem: path for path in sorted(config.knowledge_base.glob("*.jsonl"))}
