"""Documents as a company has them, written without the libraries that read them."""

import zipfile
from pathlib import Path

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_word(path: Path, *paragraphs: tuple[str, str], table: list[list[str]] | None = None) -> None:
    """A .docx file: (style, text) of each paragraph, then a table."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    for row in table or []:
        cells = "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row)
        body += f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            f'<Override PartName="/word/document.xml" ContentType="{types}"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r1" Type="{OFFICE}/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')


def write_pdf(path: Path, *pages: str) -> None:
    """A PDF with a line of text for each line of a page, in a font that every reader has."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        lines = "".join(f"({line}) Tj T* " for line in page.splitlines())
        stream = f"BT /F1 12 Tf 14 TL 50 700 Td {lines}ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    text, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    path.write_text(f"{text}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}", encoding="latin-1")
