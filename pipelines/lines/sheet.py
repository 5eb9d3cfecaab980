"""Count the rows of a sheet of questions by the splits of the coming run, in one pass, before anything is paid."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from components.data.convert.config import ConvertConfig
from components.data.convert.split_rows import SplitInput, conversation_splits, divide, near_duplicates
from components.evaluation.rewriter.gate_precheck import GoldCounts, Obstacle
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError, DataError
from qinglan.llm.providers.prices import estimate_tokens
from qinglan.prompts import own_prompt, prompt_file, student_messages
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import QuarantinedRow, Question, Split
from qinglan.rows.splits import Conversation
from qinglan.text.near_duplicates import question_key

MOST_COMPARED = 3_000
"""Highest number of rows for counting near duplicates in advance; a larger sheet has enough rows anyway."""

PROMPT_MARKS = 16
"""Tokens of a chat template's own marks."""


class GoldRow(NamedTuple):
    """A row's labels."""

    tenant_id: str
    row_id: str
    gold: tuple[str, ...]


@dataclass
class _Conversation:
    split: Split | None = None
    marked_by: str = ""
    """Id of the row that names the split."""

    rows: int = 0
    labelled: int = 0


@dataclass
class Sheet:
    """Counts of a sheet that a run needs before it starts."""

    unfit: list[str] = field(default_factory=list)
    """Rows that are no questions, each with the reason."""

    tenants: set[str] = field(default_factory=set)
    splits: Counter[Split] = field(default_factory=Counter)
    """Rows by split: the split that the sheet names, else the one that the convert stage will draw."""

    test: dict[str, GoldCounts] = field(default_factory=dict)
    """Counts of the labelled rows in the locked test, or in all folds, by tenant."""

    folds: list[Counter[Split]] = field(default_factory=list)
    """Rows by split of each fold, if the sheet is cross-fitted; `splits` are then the released model's."""

    conversations: int = 0
    gold: list[GoldRow] = field(default_factory=list)
    with_history: int = 0
    """Number of rows with a conversation history."""

    long_history: list[str] = field(default_factory=list)
    """Rows that, by an estimate, are trained without the oldest turns of their history."""

    too_long: list[str] = field(default_factory=list)
    """Rows whose prompt, by an estimate, is too long for SFT even without any history."""

    near_duplicates: list[Counter[Split]] = field(default_factory=list)
    """Rows by split that convert will leave out because they nearly repeat a row of dev or test: for the released
    model, then for each fold's model. Empty for a sheet of more than MOST_COMPARED rows."""

    @property
    def trainings(self) -> tuple[int, ...]:
        """Training rows of the released model, then of each fold's model."""
        return tuple(splits["train"] for splits in (self.splits, *self.folds))

    @property
    def left(self) -> list[Counter[Split]]:
        """Rows by split without near duplicates: for the released model, then for each fold's model."""
        pairs = zip_longest([self.splits, *self.folds], self.near_duplicates, fillvalue=Counter[Split]())
        return [splits - repeated for splits, repeated in pairs]

    @property
    def test_rows(self) -> int:
        """Rows of the test, or of all folds, with labels or without."""
        return sum(splits["test"] for splits in self.folds or [self.splits])

    @property
    def labelled_test_rows(self) -> int:
        return sum(counts.rows for counts in self.test.values())


def read_sheet(config: RunConfig, visit: Callable[[Question], None] = lambda _: None) -> Sheet:
    """Count the sheet, and call `visit` with each question; faults of the sheet are errors."""
    assert config.questions is not None
    sheet = Sheet()
    conversations: dict[Conversation, _Conversation] = {}
    texts: list[SplitInput] = []
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if isinstance(row, QuarantinedRow):
            sheet.unfit.append(f"{row.where}: {row.detail}")
            continue
        if row.tenant_id not in sheet.tenants:
            check_prompts(config, row.tenant_id)
            sheet.tenants.add(row.tenant_id)
        _count(config, conversations, row)
        sheet.with_history += bool(row.history_summary)
        if len(texts) <= MOST_COMPARED:
            key = question_key(row.question, row.history_summary)
            texts.append(SplitInput(0, row.id, (row.tenant_id, row.conversation_id), row.split, key))
        if row.gold:
            sheet.gold.append(GoldRow(row.tenant_id, row.id, row.gold))
        _note_length(sheet, config, row)
        visit(row)
    if sheet.unfit and not conversations:
        raise DataError(
            f"{config.questions}: none of {len(sheet.unfit)} rows is a question. The first, {sheet.unfit[0]} "
            "Is the column of questions named under generate.columns in the profile?"
        )
    sheet.conversations = len(conversations)
    _divide(sheet, conversations, config)
    # Near duplicates are compared in pairs, so only small sheets are counted beforehand; large ones have rows enough.
    if len(texts) <= MOST_COMPARED:
        folds = len(sheet.folds)
        divisions = (in_folds(config.convert, folds, fold) for fold in range(folds + 1))
        sheet.near_duplicates = [_near_duplicates(texts, division) for division in divisions]
    if not sheet.splits["train"]:
        if single := single_conversation(config, sheet):
            raise DataError(f"{single.reason} {single.next_step}")
        raise DataError(
            f"{config.questions}: no row is for training: every conversation is marked, or was drawn, for dev or "
            f"test. Write train into {config.generate.columns.split} of some conversations."
        )
    return sheet


def single_conversation(config: RunConfig, sheet: Sheet) -> Obstacle | None:
    """Return an obstacle if all of several rows are of one conversation; otherwise None."""
    if sheet.conversations != 1 or sheet.splits.total() == 1:
        return None
    column = config.generate.columns.conversation_id
    return Obstacle(
        reason=f"{config.questions}: all {sheet.splits.total():,} rows are of one conversation, by their {column}, "
        "and one cannot be divided into train, dev and test.",
        next_step="Name the column of conversations in generate.columns.conversation_id; with an empty name there "
        "each row is a conversation.",
    )


def _note_length(sheet: Sheet, config: RunConfig, row: Question) -> None:
    tokens = prompt_tokens(config, row)
    if tokens <= longest_prompt(config):
        return
    alone = prompt_tokens(config, row.model_copy(update={"history_summary": ""}))
    if alone >= config.sft.max_length:
        sheet.too_long.append(f"{row.id!r}: {alone:,}")
    elif row.history_summary:
        sheet.long_history.append(f"{row.id!r}: {tokens:,}")


def longest_prompt(config: RunConfig) -> int:
    """Return the highest number of tokens in a prompt that neither SFT nor PPO cuts."""
    return min(config.sft.max_prompt_tokens, config.ppo.max_prompt_tokens)


def _near_duplicates(rows: Sequence[SplitInput], config: ConvertConfig) -> Counter[Split]:
    """Count the rows by split that nearly repeat a row of dev or test, as convert compares them."""
    drawn = conversation_splits(rows, config)
    splits = [drawn[row.conversation] for row in rows]
    return Counter(splits[index] for index, _ in near_duplicates(rows, splits, config.near_duplicate))


def check_prompts(config: RunConfig, tenant: str) -> None:
    """Raise a ConfigError that names every prompt which the tenant lacks."""
    missing = [
        setting
        for setting, prompt, name in (
            ("generate.system_prompt", config.generate.system_prompt, f"teacher.{tenant}"),
            ("convert.system_prompt", config.convert.system_prompt, f"student.{tenant}"),
        )
        if not own_prompt(prompt, tenant) and not prompt_file(name).is_file()
    ]
    if missing:
        raise ConfigError(
            f"Tenant {tenant!r} lacks a prompt. Set {' and '.join(missing)} in the profile: a text, or a .txt file "
            "beside it. generate's is what the teacher is told, convert's what our model is trained and served with. "
            "`qinglan init` writes both."
        )


def prompt_tokens(config: RunConfig, row: Question) -> int:
    """Estimate the tokens of a row's prompt; the tiny model's vocabulary has about a token for each character."""
    count = len if config.base.source == "tiny" else estimate_tokens
    return PROMPT_MARKS + sum(count(turn["content"]) for turn in student_messages(row, config.convert.system_prompt))


def _count(config: RunConfig, conversations: dict[Conversation, _Conversation], row: Question) -> None:
    conversation = conversations.setdefault((row.tenant_id, row.conversation_id), _Conversation())
    conversation.rows += 1
    conversation.labelled += bool(row.gold) or config.evaluate.gate.by == "labels"
    if row.split and conversation.split is None:
        conversation.split, conversation.marked_by = row.split, row.id
    if row.split and row.split != conversation.split:
        raise DataError(
            f"{config.questions}: conversation {row.conversation_id!r} is in {conversation.split!r} (row "
            f"{conversation.marked_by!r}) and in {row.split!r} (row {row.id!r}). Turns of one conversation stay "
            "together: mend the sheet."
        )


def with_folds(config: RunConfig, sheet: Sheet) -> RunConfig:
    """Return the configuration with the number of folds in which this sheet is cross-fitted; 0 if it is not."""
    return config.model_copy(update={"convert": in_folds(config.convert, len(sheet.folds))})


def in_folds(config: ConvertConfig, folds: int, fold: int = 0) -> ConvertConfig:
    """Return the convert settings of one training: fold 0 is the released model, each other number a fold's model."""
    return config.model_copy(update={"folds": folds, "fold": fold})


def _divide(sheet: Sheet, conversations: dict[Conversation, _Conversation], config: RunConfig) -> None:
    """Count the rows by split: in folds if the locked test is too small for the gate and folds help, else with it."""
    marks = {name: conversation.split for name, conversation in conversations.items()}
    splits = divide(marks, in_folds(config.convert, 0))
    sheet.splits = _rows_of(splits, conversations)
    tested = [name for name, split in splits.items() if split == "test"]
    if folds := _folds_needed(config, conversations, tested):
        tested = [name for name, mark in marks.items() if not mark]
        divisions = (divide(marks, in_folds(config.convert, folds, fold)) for fold in range(folds + 1))
        sheet.splits, *sheet.folds = (_rows_of(division, conversations) for division in divisions)
    for name in tested:
        tenant, conversation = sheet.test.get(name[0], GoldCounts()), conversations[name]
        sheet.test[name[0]] = GoldCounts(
            tenant.rows + conversation.labelled, tenant.conversations + bool(conversation.labelled)
        )


def _folds_needed(
    config: RunConfig, conversations: Mapping[Conversation, _Conversation], tested: Collection[Conversation]
) -> int:
    """Return the number of folds for a sheet with too few labelled test rows; 0 if folds are not used.

    A test that the sheet states is kept. Folds do not help if all labelled rows are fewer than the gate requires.
    """
    unmarked = [conversation for conversation in conversations.values() if not conversation.split]
    marked = any(conversation.split == "test" for conversation in conversations.values())
    if marked or sum(conversations[name].labelled for name in tested) >= config.evaluate.gate.rows:
        return 0
    enough = sum(conversation.labelled for conversation in unmarked) >= config.evaluate.gate.cross_rows
    return config.cross_fit if enough and len(unmarked) >= 2 * config.cross_fit else 0


def _rows_of(
    splits: Mapping[Conversation, Split], conversations: Mapping[Conversation, _Conversation]
) -> Counter[Split]:
    rows = Counter[Split]()
    for name, split in splits.items():
        rows[split] += conversations[name].rows
    return rows


class UnknownGold(NamedTuple):
    """A row's gold ids that the knowledge base does not have."""

    row_id: str
    ids: tuple[str, ...]
    every: bool
    """True if none of the row's gold passages exists, so that no retrieval can be right."""


def unknown_gold(rows: Iterable[GoldRow], existing: dict[str, set[str]]) -> list[UnknownGold]:
    """Find the rows with gold ids that are missing in `existing`; rows of tenants that it lacks are ignored."""
    unknown = []
    for row in rows:
        if row.tenant_id in existing:
            ids = tuple(gold for gold in row.gold if gold not in existing[row.tenant_id])
            unknown += [UnknownGold(row.row_id, ids, len(ids) == len(row.gold))] if ids else []
    return unknown
