"""Judge a few passages of each row.

The first passages that the rewrite and the need find are judged first. Then the judge chooses further passages from
the titles of everything that the need finds. Each passage is judged against the row's fixed need. It counts as
relevant only if a second model calls it relevant too, with the same prompt and without the first model's answer.
False labels do more harm than missing ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from components.data.label.config import LabelConfig
from qinglan.concurrency import gather_or_cancel
from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.llm.config import Role
from qinglan.prompts import CHOICE_FORMAT, LABEL_FORMAT, choice_messages, label_messages
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagData, refuse_other_snapshot
from qinglan.rows.labels import HIGHEST, RELEVANT, JudgedPassage, Opinion, RowLabels, best_grade, read_opinion
from qinglan.rows.rows import ValidatedRewrite
from qinglan.text.text import one_line

HEADING_CHARACTERS = 60


class Candidate(NamedTuple):
    """A passage that may answer the need. `by` says how it was found."""

    id: str
    title: str
    content: str
    by: str

    @property
    def heading(self) -> str:
        """Title and beginning of the passage, on one line."""
        return one_line(f"{self.title} {self.content}")[:HEADING_CHARACTERS]


class Pool(NamedTuple):
    """Passages of a row that may be judged."""

    first: tuple[Candidate, ...]
    """The first passages of the rewrite and of the need, which are always judged."""

    listed: tuple[Candidate, ...]
    """All passages that the need finds, from which the judge chooses."""


class SecondJudge(NamedTuple):
    """Model that is asked to confirm a passage that the judge calls relevant."""

    role: Role
    sample: int
    """1 if it is the judge's own model, which is asked a second time and finds only random errors; else 0."""


@dataclass
class RowProgress:
    """Labels and calls of a row until now."""

    row: ValidatedRewrite
    most_calls: int
    calls: int = 0
    judged: dict[str, JudgedPassage] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """True if another call may find a better passage."""
        return self.calls < self.most_calls and best_grade(self.judged.values()) < HIGHEST

    def result(self) -> RowLabels:
        judged = tuple(self.judged.values())
        if best_grade(judged) >= RELEVANT:
            outcome = "relevant"
        elif self.calls >= self.most_calls:
            outcome = "out of calls"
        else:
            outcome = "nothing relevant" if judged else "no usable answer"
        return RowLabels(
            id=self.row.id, tenant_id=self.row.tenant_id, judged=judged, outcome=outcome, calls=self.calls,
            unusable=tuple(self.unusable),
        )  # fmt: skip


class Judges:
    """The run's judge, and the second judge that confirms its relevant passages."""

    def __init__(self, gateway: GatewayClient, rag: RagClient, second: SecondJudge, config: LabelConfig) -> None:
        self._gateway, self._rag, self._second, self._config = gateway, rag, second, config

    async def label(self, row: ValidatedRewrite) -> RowLabels:
        """Judge the row's passages until one has the highest grade, no passage is left, or the calls are used up."""
        progress = RowProgress(row, self._config.calls_per_row)
        pool = await self.pool(row)
        await self._judge_in_turn(progress, pool.first)
        rest = [candidate for candidate in pool.listed if candidate.id not in progress.judged]
        if progress.open and rest:
            await self._judge_in_turn(progress, await self._choose(progress, rest))
        return progress.result()

    async def pool(self, row: ValidatedRewrite) -> Pool:
        """Return the passages that the row's rewrite and need find. The gateway answers the rewrite's search from its
        cache, since the validate stage already made it."""
        retrieval = self._config.retrieval
        again = retrieval.request(row.question, row.rewritten_query, row.need, row.tenant_id)
        deeper = again.model_copy(update={"rewritten_query": row.need, "top_k": self._config.listed})
        rewritten, needed = (
            answer.data for answer in await gather_or_cancel(*map(self._rag.retrieve, (again, deeper)))
        )
        for data in (rewritten, needed):
            refuse_other_snapshot(data.snapshot, row.snapshot, row.id)
        listed = self._candidates(needed, "need")
        first = self._candidates(rewritten, "rewrite")[:1]
        known = {candidate.id for candidate in first}
        return Pool((*first, *(candidate for candidate in listed[:1] if candidate.id not in known)), listed)

    def _candidates(self, data: RagData, by: str) -> tuple[Candidate, ...]:
        most = self._config.passage_characters
        return tuple(
            Candidate(hit.id, str(hit.metadata.get("title", "")), hit.content[:most], by) for hit in data.recall
        )

    async def _judge_in_turn(self, progress: RowProgress, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            if not progress.open:
                return
            await self.judge(progress, candidate)

    async def judge(self, progress: RowProgress, candidate: Candidate) -> None:
        """Judge one passage. Without a usable answer, or without a call for a needed second opinion, it gets no
        label."""
        first = await self.opinion(progress, candidate, SecondJudge("judge", 0))
        if first is None:
            return
        opinions = [first]
        if first.grade >= RELEVANT:
            if progress.calls >= progress.most_calls:
                return
            second = await self.opinion(progress, candidate, self._second)
            if second is None:
                return
            opinions.append(second)
        lowest = min(opinions, key=lambda opinion: opinion.grade)
        progress.judged[candidate.id] = JudgedPassage(
            id=candidate.id, grade=lowest.grade, title=candidate.title, content=candidate.content,
            reason=lowest.reason, grades=tuple(opinion.grade for opinion in opinions), by=candidate.by,
        )  # fmt: skip

    async def opinion(self, progress: RowProgress, candidate: Candidate, judge: SecondJudge) -> Opinion | None:
        progress.calls += 1
        messages = label_messages(progress.row.need, candidate.title, candidate.content)
        try:
            answer = await self._gateway.ask(
                judge.role, messages, row=progress.row.id, sample=judge.sample, response_format=LABEL_FORMAT
            )
            return read_opinion(answer.text)
        except RowError as error:
            progress.unusable.append(error.reason)
            return None

    async def _choose(self, progress: RowProgress, rest: Sequence[Candidate]) -> list[Candidate]:
        progress.calls += 1
        messages = choice_messages(progress.row.need, [candidate.heading for candidate in rest], self._config.chosen)
        try:
            answer = await self._gateway.ask("judge", messages, row=progress.row.id, response_format=CHOICE_FORMAT)
            numbers = read_choice(answer.text, len(rest))
        except RowError as error:
            progress.unusable.append(error.reason)
            return []
        return [rest[number - 1]._replace(by="choice") for number in numbers[: self._config.chosen]]


def read_choice(text: str, listed: int) -> list[int]:
    """Return the chosen list numbers, each once; other values are ignored. An answer without a list is a RowError."""
    numbers = orjson.loads(text).get("段落")
    if not isinstance(numbers, list):
        raise RowError("malformed", "The answer has no list 段落.", text)
    # `type`, since True is an int too.
    return list(dict.fromkeys(number for number in numbers if type(number) is int and 1 <= number <= listed))
