"""Ask the teacher for rewrites and questions, and keep only answers with which retrieval finds the passage."""

from typing import NamedTuple

from components.data.augment.answers import check_hindsight, check_pseudo, read_pseudo
from components.data.augment.cases import STEP, Cases, HindsightCase, PseudoCase
from components.data.augment.config import AugmentConfig
from qinglan.concurrency import gather_or_cancel
from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.prompts import PSEUDO_FORMAT
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagData, refuse_other_snapshot
from qinglan.rows.rows import QuarantinedRow, Question, Rewrite, ValidatedRewrite, quarantine_row, to_retrieval


class HindsightRow(NamedTuple):
    """A training row with a rewrite that finds its passage."""

    row: Rewrite
    top1_score: float


class Teacher:
    """Client that asks the run's teacher, with the passage in the prompt."""

    def __init__(self, gateway: GatewayClient, rag: RagClient, cases: Cases, config: AugmentConfig) -> None:
        self._gateway, self._rag, self._cases, self._config = gateway, rag, cases, config

    async def hindsight(self, case: HindsightCase) -> HindsightRow | QuarantinedRow:
        """Return a second rewrite of the row, or a quarantined row with the reason why the rewrite is not used."""
        try:
            answer = await self._gateway.ask("teacher", case.messages(self._config), row=case.row.id)
            query = answer.line()
            check_hindsight(case, query)
            row, prompt = case.row, case.prompt
            data = await self._retrieve(row, query, prompt.need, prompt.snapshot)
            retrieval = to_retrieval(query, data, prompt.relevant, self._config.retrieval)
            if not is_better(retrieval.gold_rank, case.rank):
                raise RowError("not_better", f"rank {retrieval.gold_rank}, before {case.rank}", query)
        except RowError as error:
            return quarantine_row(case.row, STEP, error)
        rewrite = Rewrite(**row.model_dump(), rewritten_query=query, teacher=answer.model, call=answer.call)
        return HindsightRow(rewrite, retrieval.top1_score)

    async def pseudo(self, case: PseudoCase) -> ValidatedRewrite | QuarantinedRow:
        """Return a question that the passage answers, as a complete PPO row; or a quarantined row with the reason."""
        try:
            messages = case.messages(self._config)
            answer = await self._gateway.ask("teacher", messages, row=case.id, response_format=PSEUDO_FORMAT)
            question, query = read_pseudo(case, answer.text)
            check_pseudo(case, question, query, self._cases.held_out)
            config = self._config.retrieval
            plain, rewritten = await gather_or_cancel(
                self._retrieve(question, question.question, question.need, case.snapshot),
                self._retrieve(question, query, question.need, case.snapshot),
            )
            retrieval = to_retrieval(query, rewritten, question.gold, config)
            if retrieval.gold_rank != 1:
                raise RowError("not_found", f"its passage is at rank {retrieval.gold_rank}", query)
        except RowError as error:
            return QuarantinedRow(
                id=case.id, tenant_id=case.tenant_id, where=f"passage {case.passage.id}", stage=STEP,
                reason=error.reason, detail=str(error), raw=error.raw,
            )  # fmt: skip
        return ValidatedRewrite(
            **question.model_dump(), rewritten_query=query, teacher=answer.model, call=answer.call,
            need_source="teacher", scored_against=rewritten.scored_against, snapshot=rewritten.snapshot,
            reranker=rewritten.reranker_digest, retrieved_with=config,
            plain=to_retrieval(question.question, plain, question.gold, config), rewritten=retrieval,
            accepted=True, reason="",
        )  # fmt: skip

    async def _retrieve(self, row: Question, query: str, need: str, snapshot: str) -> RagData:
        request = self._config.retrieval.request(row.question, query, need, row.tenant_id)
        data = (await self._rag.retrieve(request)).data
        refuse_other_snapshot(data.snapshot, snapshot, row.id)
        return data


def is_better(rank: int | None, before: int | None) -> bool:
    """True if `rank` is better than the rank `before`. None means that the passage is not found."""
    return rank is not None and (before is None or rank < before)
