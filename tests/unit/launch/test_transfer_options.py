"""``--io``: what is not a directory is refused, and the message says which of the ways to be wrong it is."""

from pathlib import Path

import pytest

from console.errors import UsageError
from console.launch.options.request import TransferOptions
from console.launch.options.transfer import read


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        ("", "the name given is empty", "-io ."),
        (":ro", "the name given is empty", "-io ."),
        ("none", "no such directory", "mkdir it"),
        ("sub/file", "not a directory", "-io sub"),
        ("sub/file:ro", "not a directory", "-io sub"),
        ("sub:rw", "no such directory", "only :ro may follow a name, not :rw"),
    ],
)
def test_what_is_no_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str, hint: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told) as refused:
        read({"io": [text]}, TransferOptions())
    assert refused.value.hint.startswith(hint) and bool(hint) == bool(refused.value.hint)
