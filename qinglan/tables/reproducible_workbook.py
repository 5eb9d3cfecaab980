"""A workbook without the moment it was written: zip entries and document properties carry one."""

import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.files.files import atomic_write
from qinglan.files.plain_files import writing

ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
DOCUMENT_DATE = b"1980-01-01T00:00:00Z"


@contextmanager
def reproducible_workbook(target: Path) -> Iterator[Path]:
    """A path to write a workbook to; `target` becomes the same workbook, and the same bytes on any day."""
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / target.name
        yield written
        with atomic_write(target) as partial:
            _without_dates(written, partial)


def _without_dates(source: Path, target: Path) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            plain = zipfile.ZipInfo(entry.filename, ZIP_EPOCH)
            plain.compress_type = zipfile.ZIP_DEFLATED
            with old.open(entry) as content, new.open(plain, "w") as copy:
                if entry.filename == "docProps/core.xml":
                    copy.write(re.sub(rb"\d{4}-\d\d-\d\dT[\d:]+Z", DOCUMENT_DATE, content.read()))
                else:
                    while block := content.read(1 << 20):
                        copy.write(block)
