"""Choose the rows and passages about which the teacher is asked again. The same files and seed give the same choice.

Second rewrites (in hindsight, with the passage in view) are only for rows of train. New questions are written in the
style of train rows, from passages that are neither relevant to a row of dev or test nor similar to such a passage.
"""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.data.augment.config import AugmentConfig
from qinglan.errors import DataError
from qinglan.evaluation.question_kinds import is_complete
from qinglan.files.files import read_jsonl
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.paid.journal import Entry
from qinglan.prompts import PSEUDO_FORMAT, Message, hindsight_messages, pseudo_messages
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import read_knowledge_base, searched_text
from qinglan.reward.episode import TrainingPrompt, refuse_other_retrieval
from qinglan.reward.reward_function import read_prompt
from qinglan.rows.labels import relevant_ids
from qinglan.rows.prompt_parquet import read_prompts
from qinglan.rows.rows import Question, ValidatedRewrite
from qinglan.rows.splits import draw_key
from qinglan.rows.training_rows import question_of
from qinglan.text.near_duplicates import NearDuplicateIndex, question_key
from qinglan.text.same_tasks import TaskIndex

STEP = "augment"
OVERSAMPLED = 4
"""Number of passages drawn for each passage that is needed. Some are dropped later, because they are too similar to a
passage of dev or test."""

PassageKey = tuple[str, str]
"""Tenant and passage id."""


class Inputs(NamedTuple):
    """Paths that the stage reads."""

    chats: Path
    prompts: Path
    locked_test: Path
    knowledge_base: Path


class HindsightCase(NamedTuple):
    """A training row for which the teacher's rewrite does not rank a relevant passage first."""

    row: Question
    prompt: TrainingPrompt
    passage: Passage
    rank: int | None
    """Rank at which the teacher's rewrite finds a relevant passage; None if it finds none."""

    def messages(self, config: AugmentConfig) -> list[Message]:
        return hindsight_messages(self.row, self.passage.title, self.passage.content[: config.passage_characters])


class PseudoCase(NamedTuple):
    """A passage that a question is written from, and a training row as an example of style."""

    id: str
    tenant_id: str
    passage: Passage
    example: Question
    snapshot: str
    """Digest of the knowledge base that the tenant's rows were validated on."""

    def messages(self, config: AugmentConfig) -> list[Message]:
        content = self.passage.content[: config.passage_characters]
        return pseudo_messages(self.passage.title, content, self.example)


class Cases(NamedTuple):
    """Rows and passages that the teacher is asked about, and the data to check its answers."""

    hindsight: list[HindsightCase]
    pseudo: list[PseudoCase]
    held_out: NearDuplicateIndex
    """Questions of dev and test."""

    systems: Mapping[str, str]
    """The student's system prompt, by tenant."""

    left_out: Counter[str]
    """Rows and passages that the teacher is not asked about, by reason."""

    @property
    def calls(self) -> int:
        """Largest number of answers to pay for."""
        return len(self.hindsight) + len(self.pseudo)


class _Rows(NamedTuple):
    """Rows of train: the rows for which the teacher's rewrite ranks no relevant passage first, and all rows by
    tenant. Also each tenant's knowledge base digest and system prompt."""

    misses: list[tuple[Question, TrainingPrompt, int | None]]
    by_tenant: dict[str, list[Question]]
    snapshots: dict[str, str]
    systems: dict[str, str]


def paid_requests(inputs: Inputs, config: AugmentConfig) -> Iterator[PaidRequest]:
    """Yield every paid request exactly as the stage will send it."""
    cases = read_cases(inputs, config)
    for case in cases.hindsight:
        yield PaidRequest(Entry(STEP, case.row.id, "teacher"), list(case.messages(config)))
    for question in cases.pseudo:
        entry = Entry(STEP, question.id, "teacher")
        yield PaidRequest(entry, list(question.messages(config)), PSEUDO_FORMAT)


def read_cases(inputs: Inputs, config: AugmentConfig) -> Cases:
    rows, held_keys, held_questions = _read_train(inputs, config), set[PassageKey](), dict[str, bool]()
    for question, relevant in _held_out_rows(inputs):
        complete = bool(question.need) and is_complete(question.question, question.need)
        held_questions[question_key(question.question, question.history_summary)] = complete
        held_keys |= {(question.tenant_id, passage) for passage in relevant}
    left_out = Counter[str]()
    misses = _drawn_misses(rows, config)
    left_out["hindsight_calls"] = len(rows.misses) - len(misses)
    keys = [(row.tenant_id, prompt.relevant[0]) for row, prompt, _ in misses]
    known, drawn, held_texts = _read_passages(inputs.knowledge_base, set(keys), held_keys, rows.by_tenant, config)
    passages = _without_held_out(drawn, held_texts, left_out, config)
    hindsight = [
        HindsightCase(row, prompt, known[key], rank)
        for key, (row, prompt, rank) in zip(keys, misses, strict=True)
        if key in known
    ]
    left_out["passage_not_in_knowledge_base"] = len(misses) - len(hindsight)
    pseudo = [case for tenant, passage in passages for case in _pseudo_cases(tenant, passage, rows, config)]
    complete_questions = {key for key, complete in held_questions.items() if complete}
    held_out = TaskIndex(held_questions, config.near_duplicate, complete_questions)
    # The unary plus drops counts of 0.
    return Cases(hindsight, pseudo[: config.pseudo_calls], held_out, rows.systems, +left_out)


def _read_train(inputs: Inputs, config: AugmentConfig) -> _Rows:
    rows = _Rows([], defaultdict(list), {}, {})
    for entry in read_prompts(inputs.prompts / "train.parquet"):
        prompt = read_prompt(entry["extra_info"], entry["reward_model"]["ground_truth"], entry["data_source"])
        refuse_other_retrieval(prompt, config.retrieval)
        row = question_of(entry["extra_info"])
        rows.by_tenant[row.tenant_id].append(row)
        rows.snapshots.setdefault(row.tenant_id, prompt.snapshot)
        rows.systems.setdefault(row.tenant_id, entry["prompt"][0]["content"])
        rank = teacher_rank(prompt)
        if prompt.relevant and rank != 1:
            rows.misses.append((row, prompt, rank))
    if not rows.by_tenant:
        raise DataError(f"{inputs.prompts / 'train.parquet'}: no rows. Look at the convert stage's counts.")
    return rows


def teacher_rank(prompt: TrainingPrompt) -> int | None:
    """Return the best rank of a relevant passage for the teacher's rewrite; None if production would show none."""
    threshold = prompt.retrieved_with.score_threshold
    hits = prompt.teacher_retrieval.hits
    shown = [hit.id for hit in hits if hit.query_score is None or hit.query_score >= threshold]
    return next((rank for rank, passage in enumerate(shown, 1) if passage in prompt.relevant), None)


def _held_out_rows(inputs: Inputs) -> Iterator[tuple[Question, tuple[str, ...]]]:
    for _, row in read_jsonl(inputs.locked_test, ValidatedRewrite):
        yield row, relevant_ids(row.gold, row.labels)
    for entry in read_prompts(inputs.prompts / "dev.parquet"):
        prompt = TrainingPrompt.model_validate(entry["extra_info"])
        yield question_of(entry["extra_info"]), prompt.relevant


def _drawn_misses(rows: _Rows, config: AugmentConfig) -> list[tuple[Question, TrainingPrompt, int | None]]:
    """Draw rows of `misses` by the seed, one for each allowed call. Returns them in the order of the file."""
    keys = [draw_key(config.seed, row.tenant_id, row.id) for row, _, _ in rows.misses]
    drawn = heapq.nsmallest(config.hindsight_calls, range(len(keys)), key=keys.__getitem__)
    return [rows.misses[at] for at in sorted(drawn)]


def _read_passages(
    knowledge_base: Path, needed: set[PassageKey], held: set[PassageKey], tenants: Mapping[str, Any],
    config: AugmentConfig,
) -> tuple[dict[PassageKey, Passage], list[tuple[str, Passage]], list[str]]:  # fmt: skip
    """Read the knowledge base once. Return the needed passages, passages drawn for new questions, and held-out texts.

    A knowledge base may be large, so only these are kept in memory.
    """
    known: dict[PassageKey, Passage] = {}
    held_texts: list[str] = []
    files = {path.stem: path for path in sorted(knowledge_base.glob("*.jsonl"))}
    if knowledge_base.is_file():
        files = {config.tenant_id: knowledge_base}

    def free() -> Iterator[tuple[str, Passage]]:
        for tenant, path in files.items():
            for passage in read_knowledge_base(path) if tenant in tenants else ():
                if (tenant, passage.id) in needed:
                    known[tenant, passage.id] = passage
                if (tenant, passage.id) in held:
                    held_texts.append(searched_text(passage))
                else:
                    yield tenant, passage

    most = OVERSAMPLED * -(-config.pseudo_calls // config.questions_per_passage)  # rounded up
    # nsmallest(0) would read nothing, but reading also collects the needed passages.
    drawn = heapq.nsmallest(max(1, most), free(), key=lambda entry: draw_key(config.seed, entry[0], entry[1].id))
    return known, drawn[:most], held_texts


def _without_held_out(
    drawn: Sequence[tuple[str, Passage]], held_texts: Sequence[str], left_out: Counter[str], config: AugmentConfig
) -> list[tuple[str, Passage]]:
    index = NearDuplicateIndex(held_texts, config.near_duplicate)
    passages: list[tuple[str, Passage]] = []
    for tenant, passage in drawn:
        if len(passages) * config.questions_per_passage >= config.pseudo_calls:
            break
        if index.alike(searched_text(passage)):
            left_out["passage_like_dev_or_test"] += 1
        else:
            passages.append((tenant, passage))
    return passages


def _pseudo_cases(tenant: str, passage: Passage, rows: _Rows, config: AugmentConfig) -> Iterator[PseudoCase]:
    examples = rows.by_tenant[tenant]
    rng = random.Random(draw_key(config.seed, tenant, passage.id))
    for number, at in enumerate(rng.sample(range(len(examples)), min(config.questions_per_passage, len(examples)))):
        name = f"pseudo-{tenant}:{passage.id}-{number}"
        yield PseudoCase(name, tenant, passage, examples[at], rows.snapshots[tenant])
