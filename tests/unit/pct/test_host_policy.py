"""Root's file that says whose meshes a host takes part in."""

import os
import stat
from pathlib import Path

import pytest

from agents.pct.node.host_policy import PolicyFile, judge, read_file
from console.deploy.ssh import bootstrap

ROOTS = stat.S_IFREG | 0o644


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("meshes_of = ada", True),
        ("# whose\n\n  meshes_of=bob, ada  # both\n", True),
        ("meshes_of = 1000", True),
        ("meshes_of = root bob", False),
        ("meshes_of =", False),
    ],
)
def test_users_that_the_file_names_may_use_the_host(text: str, allowed: bool) -> None:
    found = judge(PolicyFile(text, 0, ROOTS), 1000, "ada")
    assert (not found.refusal) is allowed and not found.warning
    assert allowed or ("/etc/redmesh/host" in found.refusal and "ask root" in found.hint)
    assert not judge(PolicyFile(text, 0, ROOTS), 0, "root").refusal


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "it has no line"),
        ("meshes_of ada", "line 1"),
        ("# x\n\nmeshes_for = ada", "line 3"),
        ("meshes_of = ada\nmeshes_of = ada", "line 2"),
        ("\ufffd\ufffd = ada", "line 1"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_not_understood_refuses_all_but_root_and_names_the_line(text: str | None, line: str) -> None:
    found = judge(PolicyFile(text, 0, ROOTS), 1000, "ada")
    assert line in found.refusal and "root" in found.hint
    assert not judge(PolicyFile(text, 0, ROOTS), 0, "root").refusal


@pytest.mark.parametrize(
    ("uid", "mode"),
    [(1000, ROOTS), (0, stat.S_IFREG | 0o664), (0, stat.S_IFREG | 0o646), (0, stat.S_IFDIR | 0o755)],
)
def test_a_file_that_others_can_write_does_not_count(uid: int, mode: int) -> None:
    found = judge(PolicyFile("meshes_of = root", uid, mode), 1000, "ada")
    assert not found.refusal and "does not count" in found.warning


def test_without_a_file_every_mesh_may_use_the_host() -> None:
    assert judge(None, 1000, "ada").refusal == judge(None, 1000, "ada").warning == ""


def test_a_file_is_read_alike_by_a_pct_and_over_ssh(tmp_path: Path) -> None:
    path = tmp_path / "host"
    assert read_file(str(path)) is bootstrap.policy_file(str(path)) is None
    path.write_bytes(b"meshes_of = ada\xff\n")
    path.chmod(0o640)
    found = read_file(str(path))
    assert found is not None
    assert bootstrap.policy_file(str(path)) == [found.text, found.uid, found.mode]
    assert (found.text, found.uid, found.mode) == ("meshes_of = ada\ufffd\n", os.geteuid(), stat.S_IFREG | 0o640)
    path.unlink()
    os.mkfifo(path)
    found = read_file(str(path))
    assert (
        found is not None and found.text is None and bootstrap.policy_file(str(path)) == [None, found.uid, found.mode]
    )
