"""Asks the teacher, and lets retrieval decide: a rewrite stays only if it finds the passage better than before."""

from typing import NamedTuple

from components.data.augment.answers import check_hindsight, check_pseudo, read_pseudo
from components.data.augment.cases import STEP, Cases, HindsightCase, PseudoCase
from components.data.augment.config import AugmentConfig
from qinglan.concurrency import gather_or_cancel
from qinglan.errors import DataError, RowError
from qinglan.llm.client import GatewayClient
from qinglan.prompts import PSEUDO_FORMAT
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagData, contradicts_snapshot
from qinglan.rows.rows import QuarantinedRow, Rewrite, ValidatedRewrite, quarantine_row, to_retrieval


class HindsightRow(NamedTuple):
    """A training row with a rewrite that finds its passage."""

    row: Rewrite
    top1_score: float


class Teacher:
    """The run's teacher, which sees the passage."""

    def __init__(self, gateway: GatewayClient, rag: RagClient, cases: Cases, config: AugmentConfig) -> None:
        self._gateway, self._rag, self._cases, self._config = gateway, rag, cases, config

    async def hindsight(self, case: HindsightCase) -> HindsightRow | QuarantinedRow:
        """The row's rewrite, once more; or why it is of no use."""
        try:
            answer = await self._gateway.ask("teacher", case.messages(self._config), row=case.row.id)
            query = answer.line()
            check_hindsight(case, query)
            row, prompt = case.row, case.prompt
            data = await self._retrieve(row.question, query, prompt.need, row.tenant_id, prompt.snapshot)
            retrieval = to_retrieval(query, data, prompt.relevant, self._config.retrieval)
            if not is_better(retrieval.gold_rank, case.rank):
                raise RowError("not_better", f"rank {retrieval.gold_rank}, before {case.rank}", query)
        except RowError as error:
            return quarantine_row(case.row, STEP, error)
        rewrite = Rewrite(**row.model_dump(), rewritten_query=query, teacher=answer.model, call=answer.call)
        return HindsightRow(rewrite, retrieval.top1_score)

    async def pseudo(self, case: PseudoCase) -> ValidatedRewrite | QuarantinedRow:
        """A question that the passage answers, with all that a row of PPO needs; or why there is none."""
        try:
            messages = case.messages(self._config)
            answer = await self._gateway.ask("teacher", messages, row=case.id, response_format=PSEUDO_FORMAT)
            pseudo = read_pseudo(case, answer.text)
            check_pseudo(case, pseudo, self._cases.held_out)
            question, config = pseudo.question, self._config.retrieval
            plain, rewritten = await gather_or_cancel(
                *(
                    self._retrieve(question.question, query, question.need, question.tenant_id, case.snapshot)
                    for query in (question.question, pseudo.query)
                )
            )
            retrieval = to_retrieval(pseudo.query, rewritten, question.gold, config)
            if retrieval.gold_rank != 1:
                raise RowError("not_found", f"its passage is at rank {retrieval.gold_rank}", pseudo.query)
        except RowError as error:
            return _without_question(case, error)
        return ValidatedRewrite(
            **question.model_dump(), rewritten_query=pseudo.query, teacher=answer.model, call=answer.call,
            need_source="teacher", scored_against=rewritten.scored_against, snapshot=rewritten.snapshot,
            reranker=rewritten.reranker_digest, retrieved_with=config,
            plain=to_retrieval(question.question, plain, question.gold, config), rewritten=retrieval,
            accepted=True, reason="",
        )  # fmt: skip

    async def _retrieve(self, question: str, query: str, need: str, tenant: str, snapshot: str) -> RagData:
        data = (await self._rag.retrieve(self._config.retrieval.request(question, query, need, tenant))).data
        if contradicts_snapshot(data.snapshot, snapshot):
            raise DataError(
                f"{tenant}: the RAG service answers from knowledge base {data.snapshot[:12]}, the rows were "
                f"validated on {snapshot[:12]}. Serve that one, or validate again."
            )
        return data


def is_better(rank: int | None, before: int | None) -> bool:
    """Tell if a passage is found where it was not, or further in front."""
    return rank is not None and (before is None or rank < before)


def _without_question(case: PseudoCase, error: RowError) -> QuarantinedRow:
    return QuarantinedRow(
        id=case.id, tenant_id=case.tenant_id, where=f"passage {case.passage.id}", stage=STEP, reason=error.reason,
        detail=str(error), raw=error.raw,
    )  # fmt: skip
