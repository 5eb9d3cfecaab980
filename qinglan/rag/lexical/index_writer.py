"""Writes the files of a search index, a batch of passages at a time.

Memory holds only the ids, which must be unique, and the vocabulary. A term's weight is known only when every passage
is counted. Until then the terms of each passage are stored in a temporary file, with 8 bytes per term.
"""

import logging
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import orjson
from tantivy import Document, Index, IndexWriter, SchemaBuilder

from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import inverse_frequency, read_knowledge_base
from qinglan.rag.lexical.index_files import OFFSETS, PASSAGES, SEARCH, WEIGHTS
from qinglan.rag.lexical.passage_terms import (
    ONE_BIT,
    BatchTerms,
    Counts,
    DocumentFrequencies,
    Weights,
    extract_terms,
    passage_batches,
)
from qinglan.terminal.progress import EVERY_SECONDS, progress_line

WRITER_BYTES = 50_000_000

log = logging.getLogger("qinglan.rag")


def write_index(kb: Path, folder: Path) -> int:
    """Write every file of the index except its manifest; returns the number of passages."""
    (folder / SEARCH).mkdir(parents=True)
    schema = SchemaBuilder()
    schema.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    schema.add_unsigned_field("number", fast=True)
    index = Index(schema.build(), path=str(folder / SEARCH))
    starts = array("Q", [0])
    progress = BuildProgressLog(kb)
    with TermSpool(folder / f"{WEIGHTS}.waiting") as weights:
        with (folder / PASSAGES).open("wb") as lines, index.writer(WRITER_BYTES, num_threads=1) as writer:
            for batch in passage_batches(read_knowledge_base(kb)):
                cut = extract_terms(batch)
                weights.add(cut)
                _add(writer, cut.bodies, len(starts) - 1)
                for line in map(_line, batch):
                    starts.append(starts[-1] + lines.write(line))
                progress.done(len(starts) - 1, starts[-1])
        with (folder / WEIGHTS).open("wb") as file:
            for weighed in weights.of_passages():
                weighed.tofile(file)
    (folder / OFFSETS).write_bytes(starts.tobytes())
    return len(starts) - 1


def _line(passage: Passage) -> bytes:
    return orjson.dumps(vars(passage), option=orjson.OPT_APPEND_NEWLINE)  # read from JSON, it has no other attributes


def _add(writer: IndexWriter, bodies: list[str], first: int) -> None:
    for number, body in enumerate(bodies, first):
        document = Document(body=body)
        document.add_unsigned("number", number)
        writer.add_document(document)


class TermSpool:
    """Computes the weights of passages. Their terms are stored in a temporary file until all passages are counted."""

    def __init__(self, waiting: Path) -> None:
        self._path = waiting
        self._file = waiting.open("w+b")
        self._batches: list[Counts] = []
        self._passages = 0
        self._frequencies = DocumentFrequencies()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink()

    def add(self, cut: BatchTerms) -> None:
        self._frequencies.add(cut)
        (cut.codes << ONE_BIT | cut.in_title).tofile(self._file)
        self._batches.append(cut.counts.astype(np.uint32))
        self._passages += len(cut.counts)

    def of_passages(self) -> Iterator[Weights]:
        """Yield the weights of each passage, a batch at a time: the summed idf of all its terms and of its title."""
        weigh = self._frequencies.weigher(lambda df: inverse_frequency(df, self._passages))
        self._file.seek(0)
        for counts in self._batches:
            codes = np.fromfile(self._file, np.uint64, counts.sum())
            yield weigh(codes >> ONE_BIT, codes & ONE_BIT == ONE_BIT, counts)


class BuildProgressLog:
    """Logs progress every few seconds, because a million passages take a minute."""

    def __init__(self, kb: Path) -> None:
        self._name, self._bytes = kb.name, kb.stat().st_size
        self._started = self._last = time.monotonic()

    def done(self, passages: int, written: int) -> None:
        """Log progress if it is due. The total number of passages is estimated from the file's size."""
        now = time.monotonic()
        if now - self._last >= EVERY_SECONDS:
            self._last = now
            total = max(passages, round(passages * self._bytes / written))
            log.info("%s", progress_line(f"index {self._name}", passages, total, now - self._started, ""))
