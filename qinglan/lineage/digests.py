"""What a file or a folder is called by its content, so that anyone can check it with sha256sum."""

import hashlib
from pathlib import Path

from qinglan.files import sha256_file


def digest(path: Path) -> str:
    """Of a file's bytes; of a folder, what `find -type f | LC_ALL=C sort | xargs sha256sum | sha256sum` says."""
    return sha256_file(path) if path.is_file() else tree_digest(files_of(path))


def files_of(folder: Path) -> dict[str, str]:
    """Each file's digest by its path in the folder, with forward slashes."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256_file(found[name]) for name in sorted(found, key=str.encode)}


def tree_digest(files: dict[str, str]) -> str:
    """Of a folder with these files."""
    return hashlib.sha256("".join(f"{sha}  {name}\n" for name, sha in files.items()).encode()).hexdigest()
