"""A company's documents as a knowledge base: Word, PDF, HTML, Markdown, text, and sheets with a passage in each row.

Each format is read by its own library into headings and paragraphs. Scripts, formulas, images and macros are left
out, and nothing is fetched.
"""

# markitdown 0.1.9 was compared on 40 documents (2026-11-28) and not taken: it loses the page numbers of PDFs (in one
# PDF, 4,600 of 5,654 words run together), adds link targets and the navigation of HTML pages (5 % more words), and
# reads .docx by mammoth as we do. Its import takes 2 CPU seconds and 139 MB, onnxruntime among them.

import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pydantic import ValidationError

from commands.init.documents.markdown import read_markdown
from commands.init.documents.passages import Block, Page, document_passages, safe_id
from commands.init.sheet_formats import read_records, sheets_of
from qinglan.errors import DataError
from qinglan.files.input_paths import path_fault
from qinglan.rag.contract import Passage
from qinglan.tables.csv_tables import read_text
from qinglan.tables.file_formats import refuse_bomb
from qinglan.tables.sheet_reader import Formula
from qinglan.terminal import visible
from qinglan.text.text import with_line_feeds

RECORD_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".xlsx")
HEADING_TAGS = ("h1", "h2", "h3", "h4", "h5", "h6")
DROPPED_TAGS = ("script", "style", "noscript", "template", "nav", "footer", "iframe", "svg", "head", "title")
BLOCK_TAGS = (*HEADING_TAGS, "p", "li", "tr", "pre", "div", "blockquote", "dt", "dd", "section", "article", "br")
CELL_TAGS = ("td", "th")
SECONDS, SECONDS_A_MB = 60, 20
"""CPU seconds that reading a document may take, and further seconds for each MB of the file. A PDF of 2,000 pages
takes about a minute."""

SHOWN_FILES = 5
"""Highest number of files that the error names if no file holds a passage."""

SCANNED = (".pdf", ".docx")
"""Formats that may hold pictures of pages."""

NO_TEXT = "holds no text. Put some there, or leave it out"
NO_TEXT_IN_SCAN = "holds no text (a scan needs OCR first)"
NO_FILE = "There is no file; links and hidden files are not read. Put the documents themselves there."
PACKAGES = "node_modules"
TITLE_STYLE = "p[style-name='Title'] => h1:fresh"
CONTENT_NAMES = (
    "content", "内容", "正文", "本文", "answer", "回答", "答案", "答复", "text", "body", "passage", "段落", "描述",
    "description",
)  # fmt: skip
TITLE_NAMES = (
    "title", "标题", "名称", "问题", "标准问题", "タイトル", "質問", "question", "name", "heading", "产品", "主题",
)  # fmt: skip
ID_NAMES = ("id", "编号", "passage_id", "doc_id", "chunk_id", "段落编号", "知识编号")


class DocumentReport(NamedTuple):
    """A file, and the number of its passages."""

    path: Path
    passages: int
    note: str = ""
    """The reason why the file gave no passage; empty if it gave some."""

    remarks: tuple[str, ...] = ()
    """Parts of the file that were not read, such as a sheet of a workbook, with the reason."""

    @property
    def in_words(self) -> str:
        return self.note or f"{self.passages:,} {'passage' if self.passages == 1 else 'passages'}"

    @property
    def line(self) -> str:
        """The path and the report in words; a note that already begins with the path is the whole line."""
        return self.note if self.note.startswith(f"{self.path}:") else f"{self.path}: {self.in_words}"


class Documents(NamedTuple):
    passages: list[Passage]
    files: list[DocumentReport]
    notes: tuple[str, ...] = ()
    """Sentences with the number of files that were left out, such as drafts."""


class FilePassages(NamedTuple):
    passages: list[Passage]
    remarks: tuple[str, ...] = ()
    draft: bool = False


def read_documents(roots: Iterable[Path]) -> Documents:
    """Read the passages of these files, and of all files in these folders. A file that cannot be read is reported
    with the reason; DataError if no passage is left."""
    (files, hidden), drafts = list_files(roots), 0
    read = Documents([], [])
    origin: dict[str, str] = {}
    for path, source in files:
        try:
            with _time_limit(SECONDS + SECONDS_A_MB * (path.stat().st_size >> 20)):
                file = _passages(path, source)
            note = "" if file.passages else NO_TEXT_IN_SCAN if path.suffix.lower() in SCANNED else NO_TEXT
        except DataError as error:
            file, note = FilePassages([]), str(error).removeprefix(f"{path}: ")
        if file.draft:
            drafts += 1
            continue
        for passage in file.passages:
            if other := origin.get(passage.id):
                raise DataError(
                    f"{path}: id {passage.id!r} is used in {other} already. Give every passage its own id."
                )
            origin[passage.id] = str(path)
        read.passages.extend(file.passages)
        read.files.append(DocumentReport(path, len(file.passages), note, file.remarks))
    notes = []
    if drafts:
        notes.append(f"Left out as drafts, by draft: true in their front matter: {drafts:,}.")
    if hidden:
        notes.append(f"Left out as hidden, or as part of a hidden folder or of node_modules: {hidden:,}.")
    read = read._replace(notes=tuple(notes))
    if not read.passages:
        if len(read.files) == 1:
            raise DataError(read.files[0].line, *read.files[0].remarks, *read.notes)
        reasons = [f"- {report.line}" for report in read.files[:SHOWN_FILES]] or [f"- {NO_FILE}"]
        raise DataError(f"No passage could be read from {', '.join(map(str, roots))}:", *reasons, *read.notes)
    return read


def list_files(roots: Iterable[Path]) -> tuple[list[tuple[Path, PurePath]], int]:
    """List all files except links, each with its path inside its root; also return the number of hidden documents."""
    files, hidden = list[tuple[Path, PurePath]](), 0
    for root in roots:
        if fault := path_fault(root, "Give the documents of the knowledge base.", folder=True):
            raise DataError(fault)
        if root.is_file():
            files.append((root, PurePath(root.name)))
            continue
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if not path.is_file() or path.is_symlink():
                continue
            if any(part.startswith((".", "~$")) or part == PACKAGES for part in inside.parts):
                hidden += path.suffix.lower() in DOCUMENT_ENDINGS
            else:
                files.append((path, inside))
    return files, hidden


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise a DataError after `seconds` of CPU time: the time of some parsers grows with the square of the size."""

    def end(*_: object) -> None:
        raise DataError(f"could not be read in {seconds:.0f} s of work. Save it again, or split it")

    before = signal.signal(signal.SIGVTALRM, end)
    # The signal is repeated each second, because a library's `except` may catch the error of the first one.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _passages(path: Path, source: PurePath) -> FilePassages:
    """Read a file's passages, with a remark on each part that was not read."""
    suffix = path.suffix.lower()
    if suffix in RECORD_ENDINGS:
        sheets = sheets_of(path)
        if len(sheets) > 1:
            return workbook_passages(path, source, sheets)
        return FilePassages([*record_passages(path, source)])
    if suffix not in READERS:
        raise DataError(f"is no format that is read here. Save it as one of {', '.join(DOCUMENT_ENDINGS)}")
    blocks = [*READERS[suffix](path)]
    pages = [block for block in blocks if isinstance(block, Page)]
    if any(page.draft for page in pages):
        return FilePassages([], draft=True)
    remarks = tuple(page.remark for page in pages if page.remark)
    return FilePassages([*document_passages(source, blocks)], remarks)


def workbook_passages(path: Path, source: PurePath, sheets: Sequence[str]) -> FilePassages:
    """Read the passages of all sheets that have a column of texts, with a remark on each other sheet.

    An id that occurs in two sheets is an error, because leaving one of the sheets out would hide the conflict.
    """
    passages, left_out, sheet_of = list[Passage](), list[str](), dict[str, str]()
    for name in sheets:
        try:
            rows = list(record_passages(path, source, name))
        except DataError as error:
            left_out.append(f"The sheet {visible(name)} is not read: {str(error).removeprefix(f'{path}: ')}")
            continue
        for passage in rows:
            if other := sheet_of.get(passage.id):
                raise DataError(
                    f"{path}: id {visible(passage.id)!r} is used in the sheets {visible(other)} and {visible(name)}. "
                    "Give every passage its own id, or hide a sheet that is no part of the knowledge base."
                )
            sheet_of[passage.id] = name
        passages += rows
    return FilePassages(passages, tuple(left_out))


def record_passages(path: Path, source: PurePath, sheet: str = "") -> Iterator[Passage]:
    """Read a passage from each row of a sheet: the title, the text, and the other cells as metadata.

    `sheet` is set for a workbook of several sheets. Its name becomes metadata, and part of the ids of rows without an
    id.
    """
    rows = read_records(path, sheet=sheet, usual_names=(*CONTENT_NAMES, *TITLE_NAMES, *ID_NAMES)).rows
    columns = {name.strip().lower(): name for row in rows for name in reversed(row)}
    content = next((columns[name] for name in CONTENT_NAMES if name in columns), "")
    title = next((columns[name] for name in TITLE_NAMES if name in columns), "")
    identity = next((columns[name] for name in ID_NAMES if name in columns), "")
    if rows and not content:
        raise DataError(
            f"no column is called {', '.join(CONTENT_NAMES)}; there are {', '.join(map(visible, columns))}. "
            f"Rename the column that holds the passages' text to {CONTENT_NAMES[0]}."
        )
    row_numbers: dict[str, int] = {}
    prefix = "#".join((str(source), sheet) if sheet else (str(source),))
    origin = {"source": str(source), **({"sheet": sheet} if sheet else {})}
    for number, row in enumerate(rows, 1):
        text = _cell(row.get(content))
        if not text:
            continue
        passage_id = _cell(row.get(identity)) or f"{safe_id(prefix)}#{number}"
        first = row_numbers.setdefault(passage_id, number)
        if first != number:
            raise DataError(
                f"{path}: row {number}: id {visible(passage_id)!r} is used in row {first} already. Give every "
                "passage its own id."
            )
        metadata = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
        metadata_cells = {
            name: _cell(value) for name, value in row.items() if name not in (content, title, identity, "metadata")
        }
        try:
            yield Passage(
                id=passage_id, title=_cell(row.get(title)), content=text,
                metadata={**origin, **{k: v for k, v in metadata_cells.items() if v}, **metadata},
            )  # fmt: skip
        except ValidationError as error:
            raise DataError(f"row {number} is no passage ({error.error_count()} faults)") from error


def _cell(value: Any) -> str:
    """Return a cell's text; empty for a formula, and for words such as `nan`."""
    if value is None or isinstance(value, Formula):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = with_line_feeds(str(value)).strip().encode("utf-8", "replace").decode()
    return "" if text.lower() in ("nan", "none", "null") else text


def read_plain(path: Path) -> Iterator[Block]:
    return (Block(part) for part in re.split(r"\n\s*\n", read_text(path).replace("\r\n", "\n")))


def read_html(html: str) -> Iterator[Page | Block]:
    """Read headings, paragraphs, list items and table rows, without DROPPED_TAGS such as scripts."""
    from bs4 import BeautifulSoup
    from bs4.exceptions import ParserRejectedMarkup

    try:
        soup = BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup as error:
        raise DataError(
            f"not a readable .html file ({visible(str(error).splitlines()[-1].strip())[:120]})"
        ) from error
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    if title and not soup.find("h1"):
        yield Page(title)
    last, words = None, list[str]()
    for block, text in _html_texts(soup):
        if block is not last:
            yield from _html_block(last, words)
            last, words = block, []
        words.append(text)
    yield from _html_block(last, words)


def _html_texts(soup: Any) -> Iterator[tuple[Any, str]]:
    """Yield each text with the block element around it; the cells of a table row are one block.

    Each element looks only at its parent, so the time does not grow with the depth of nesting.
    """
    from bs4.element import PreformattedString, Tag

    blocks: dict[int, Any] = {id(soup): None}
    in_cell, dropped = set[int](), set[int]()
    for node in soup.descendants:
        parent = id(node.parent)
        if parent in dropped or (isinstance(node, Tag) and node.name in DROPPED_TAGS):
            dropped.add(id(node))
        elif not isinstance(node, Tag):
            if not isinstance(node, PreformattedString):  # comments, declarations
                yield blocks[parent], str(node)
        elif node.name in CELL_TAGS or parent in in_cell:
            in_cell.add(id(node))
            blocks[id(node)] = blocks[parent]
            if node.name in CELL_TAGS:
                yield blocks[parent], " | "
        else:
            blocks[id(node)] = node if node.name in BLOCK_TAGS else blocks[parent]


def _html_block(tag: Any, words: list[str]) -> Iterator[Block]:
    text = " ".join("".join(words).split()).strip(" |")
    if text:
        yield Block(text, level=int(tag.name[1]) if tag is not None and tag.name in HEADING_TAGS else 0)


def read_word(path: Path) -> Iterator[Page | Block]:
    """Read a .docx file by converting it to HTML, which keeps headings and tables; images are not opened."""
    import mammoth

    refuse_bomb(path)
    try:
        with path.open("rb") as file:
            no_images = mammoth.images.img_element(lambda image: {})
            html = mammoth.convert_to_html(
                file, style_map=TITLE_STYLE, convert_image=no_images, external_file_access=False
            ).value
    except Exception as error:  # mammoth lets the errors of its parsers through
        raise DataError(f"not a readable .docx file ({visible(error)[:120]})") from error
    return read_html(html)


def read_pdf(path: Path) -> Iterator[Block]:
    """Read the text of each page, with the broken lines of a paragraph joined again."""
    import logging

    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # an error below reports what cannot be read
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError("is encrypted. Save it without a password")
        pages = [page.extract_text() for page in reader.pages]
    except DataError:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise DataError(f"not a readable .pdf file ({visible(error)[:120]})") from error
    for number, text in enumerate(pages, 1):
        for paragraph in join_lines(text):
            yield Block(paragraph, page=number)


def join_lines(text: str) -> Iterator[str]:
    """Join a page's lines into paragraphs; each ends at an empty line, a short line or the end of a sentence."""
    lines = [line.strip() for line in text.splitlines()]
    width = max(map(len, lines), default=0)
    paragraph = ""
    for line in lines:
        if paragraph and line:
            joint = "" if ord(paragraph[-1]) > 0x2E7F or ord(line[0]) > 0x2E7F else " "
            paragraph = f"{paragraph}{joint}{line}"
        else:
            paragraph = paragraph or line
        if paragraph and (
            not line or line.endswith(("。", "！", "？", ".", "!", "?", "：", ":")) or len(line) < 0.6 * width
        ):
            yield paragraph
            paragraph = ""
    if paragraph:
        yield paragraph


READERS: dict[str, Callable[[Path], Iterator[Page | Block]]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), lambda path: read_markdown(read_text(path))),
    **dict.fromkeys((".html", ".htm"), lambda path: read_html(read_text(path))),
    ".txt": read_plain, ".docx": read_word, ".pdf": read_pdf,
}  # fmt: skip
DOCUMENT_ENDINGS = (*READERS, *RECORD_ENDINGS)
