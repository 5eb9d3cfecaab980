"""Writes and reads PPO rows as parquet, in groups, so that memory does not grow with the file."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qinglan.errors import DataError
from qinglan.files.files import atomic_write

GROUP = 2_000


class ParquetRows:
    """A parquet file to add rows to. The complete file appears when the `with` block ends without an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        import pyarrow.parquet

        partial = self._exit.enter_context(atomic_write(self._path))
        self._schema = ppo_schema()
        self._writer = pyarrow.parquet.ParquetWriter(partial, self._schema)
        return self

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._writer.close()
            self._exit.__exit__(kind, error, trace)


def ppo_schema() -> Any:
    """Return the schema of PPO rows. Without it pyarrow would infer a wrong type if the first group of rows has no
    gold."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    hit = pa.struct({"id": text, "reranker_score": pa.float64(), "query_score": pa.float64()})
    retrieval = pa.struct(
        {
            "query": text, "hits": pa.list_(hit), "top1_score": pa.float64(), "count": pa.int64(),
            "gold_rank": pa.int64(),
        }
    )  # fmt: skip
    labels = pa.list_(pa.struct({"id": text, "grade": pa.int64()}))
    settings = pa.struct({"kb_name": text, "top_k": pa.int64(), "score_threshold": pa.float64()})
    texts_of_extra = (
        "id conversation_id tenant_id split question user_profile history_summary need snapshot reranker teacher "
        "call teacher_rewrite scored_against kind"
    )
    extra = {
        **dict.fromkeys(texts_of_extra.split(), text),
        "gold": texts, "labels": labels, "accepted": pa.bool_(), "teacher_retrieval": retrieval,
        "plain_retrieval": retrieval, "retrieved_with": settings,
    }  # fmt: skip
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct(extra),
        }
    )


def read_prompts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of PPO rows, one at a time; a DataError if the file cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=GROUP):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error}). The convert stage writes it.") from error
