"""A tenant's store is a prefix, and nothing that is asked of it leads out of there."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qinglan.errors import DataError
from qinglan.files.digests import digest, file_digests
from qinglan.store import Store, open_store
from qinglan.store.backend import checked_key
from qinglan.store.folder_backend import FolderBackend
from qinglan.store.s3_backend import S3Backend
from qinglan.store.s3_connection import S3Settings
from tests.qinglan.store.test_s3_connection import SET

OTHER = "chengla"
SECRET = b"what the other tenant keeps"
PIECES = st.sampled_from(
    ["..", ".", "", OTHER, "tenants", "releases", "names", "notes", "a", "a.json", "000001.json", "~", "\\", "..\\",
     "%2e%2e", "a\x00b", "\n", "\ud800", "．．", "0" * 64, "b" * 300]
)  # fmt: skip
PATHS = st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5)), min_size=1).map("/".join))


@pytest.mark.slow
@given(PATHS)
def test_a_key_in_s3_begins_with_its_prefix_or_is_refused(key: str) -> None:
    backend = S3Backend(S3Settings.of("s3://bucket/tenants/fivedoctors", SET))
    try:
        whole = backend.key(key)
    except DataError:
        return

    assert whole == f"tenants/fivedoctors/{key}"
    assert not {"..", "."} & set(whole.split("/"))
    assert "//" not in whole


@pytest.mark.slow
@given(PATHS)
def test_a_key_in_a_folder_stays_under_it_or_is_refused(key: str) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(DataError):
        place = FolderBackend(Path(folder)).at(key)

        assert place.resolve().is_relative_to(Path(folder).resolve())
        assert str(place) == str(Path(folder).resolve() / checked_key(key))


def asks(store: Store, folder: Path, word: str) -> list[Callable[[], object]]:
    """Everything that can be asked of a store, with a hostile word in each place."""
    sha = digest(folder / "artifact")
    return [
        lambda: store.has(word), lambda: store.pull(word, folder / "back"),
        lambda: store.push(folder / "artifact", word), lambda: store.name(word), lambda: store.history(word),
        lambda: store.point(word, sha, None, "x"), lambda: store.attach(sha, word, b"!"), lambda: store.notes(word),
        lambda: store.backend.read(word), lambda: store.backend.part(word, 0, 99),
        lambda: store.backend.create(word, b"!"), lambda: store.backend.children(f"{word}/"),
        lambda: store.backend.children("releases/", word), lambda: store.backend.objects(f"{word}/"),
    ]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60)
@given(PATHS)
def test_no_word_reads_or_changes_what_another_tenant_has(word: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "artifact").mkdir()
        (folder / "artifact" / "file").write_text("own")
        other = folder / "tenants" / OTHER
        other.mkdir(parents=True)
        (other / "secret").write_bytes(SECRET)
        before = file_digests(folder)
        store = open_store(str(folder / "tenants" / "fivedoctors")).prepare()

        for ask in asks(store, folder, word):
            with suppress(DataError, OSError):  # the latter where a file is in the way of a folder
                assert SECRET not in repr(ask()).encode()

        after = {
            name: sha for name, sha in file_digests(folder).items() if not name.startswith("tenants/fivedoctors/")
        }
        assert {name: sha for name, sha in after.items() if not name.startswith("back/")} == before


@pytest.mark.parametrize("word", ["../chengla/secret", "releases/../../chengla/secret", "/etc/passwd", "a//b", ".."])
def test_a_key_that_leads_out_of_the_store_is_refused_with_the_reason(tmp_path: Path, word: str) -> None:
    backend = FolderBackend(tmp_path)

    for ask in (
        backend.read,
        lambda key: backend.part(key, 0, 1),
        lambda key: backend.create(key, b"!"),
        backend.children,
    ):
        with pytest.raises(DataError, match="no key of a store"):
            ask(word)
