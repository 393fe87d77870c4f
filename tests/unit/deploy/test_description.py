"""Hosts in mesh.toml: what patterns stand for, what is refused and where it stands, what the page says."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.deploy.hosts.description import HOST_KEYS, check_table, expand, read_hosts, selected
from console.deploy.hosts.inventory import folded
from console.errors import UsageError
from console.settings import Settings, load

ROOT = Path(__file__).resolve().parents[3]


def settings_of(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "mesh.toml"
    path.write_text(text)
    return load(config=str(path), environ={"XDG_STATE_HOME": str(tmp_path)})


def test_patterns_of_names_and_addresses(tmp_path: Path) -> None:
    hosts = read_hosts(
        settings_of(
            tmp_path,
            '[[hosts]]\nname = "node[001-003]"\naddress = "10.0.0.[7-9]"\nprocessors = 16\nlabels = ["big"]\n'
            '[[hosts]]\nname = "a[1-2]b[1-2]"\naddress = "{name}.cluster"\nrole = "service"\n'
            '[[hosts]]\nname = "login"\naddress = "10.0.0.1"\nuser = "ada"\nport = 2222\nagent_port = 99\n',
        )
    )
    assert [(host.name, host.address) for host in hosts] == [
        ("node001", "10.0.0.7"), ("node002", "10.0.0.8"), ("node003", "10.0.0.9"),
        ("a1b1", "a1b1.cluster"), ("a1b2", "a1b2.cluster"), ("a2b1", "a2b1.cluster"), ("a2b2", "a2b2.cluster"),
        ("login", "10.0.0.1"),
    ]  # fmt: skip
    assert hosts[0].processors == 16 and hosts[3].processors == -1 and hosts[3].role == "service"
    assert (hosts[7].user, hosts[7].port, hosts[7].agent_port) == ("ada", 2222, 99)
    assert [host.name for host in selected(hosts, "node[002-003],login")] == ["node002", "node003", "login"]
    assert [host.name for host in selected(hosts, "", ["big"])] == ["node001", "node002", "node003"]


def test_plain_names_are_hosts_too(tmp_path: Path) -> None:
    hosts = read_hosts(settings_of(tmp_path, 'hosts = ["n[1-2]", "other.cluster"]\n'))
    assert [(host.name, host.address) for host in hosts] == [
        ("n1", "n1"), ("n2", "n2"), ("other.cluster", "other.cluster"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("processors = 0", "5: processors must be between 1 and"),
        ('processors = "many"', '5: processors must be a whole number or "auto"'),
        ("procesors = 3", "5: no key of a host is called 'procesors'"),
        ('role = "boss"', "5: no role is called 'boss'"),
        ('mode = "reserved"', "5: no mode is called"),
        ("port = 70000", "5: port must be between 1 and 65535"),
        ('address = "-oProxyCommand=x"', "5: '-oProxyCommand=x' is not an address"),
        ('address = "a b"', "5: 'a b' is not an address"),
        ('address = "a\\nb"', "is not an address"),
        ('address = "10.0.0.[1-3]"', "5: address makes 3 of '10.0.0.[1-3]', name makes 2 hosts"),
        ('address = "10.0.0.[1-"', "is not a pattern"),
        ('user = "-x"', "5: '-x' is not an account's name"),
        ('python = "python3 -c"', "5: 'python3 -c' is no Python"),
        ('python = "-c"', "is no Python"),
        ('labels = "big"', "5: labels must be a list of words"),
        ("port = true", "5: port must be a port"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    text = f'# a comment\nfanout = 8\n[[hosts]]\nname = "n[1-2]"\n{line}\n'
    with pytest.raises(UsageError) as refused:
        read_hosts(settings_of(tmp_path, text))
    assert message in refused.value.message and str(tmp_path / "mesh.toml") in refused.value.message


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "../up", "a/b", "a b", "", "a..b", "n\\u0000", "x" * 64, "7", "n\\nm"]
)
def test_names_that_could_be_taken_for_something_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        read_hosts(settings_of(tmp_path, f'[[hosts]]\nname = "{name}"\n'))


def test_two_that_are_the_same(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="described twice"):
        read_hosts(settings_of(tmp_path, 'hosts = ["n[1-2]", "n2"]\n'))
    with pytest.raises(UsageError, match="would both listen"):
        read_hosts(
            settings_of(tmp_path, '[[hosts]]\nname = "a"\naddress = "x"\n[[hosts]]\nname = "b"\naddress = "x"\n')
        )


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=6, unique=True), st.integers(1, 4), st.sampled_from(["", "-x"])
)
def test_a_folded_pattern_stands_for_the_same(numbers: list[int], width: int, after: str) -> None:
    names = [f"n{number:0{width}d}{after}" for number in numbers]
    pattern = folded(names)
    assert pattern is None or expand(pattern) == names


def test_runs_are_folded() -> None:
    assert folded(["n08", "n09", "n10"]) == "n[08-10]"
    assert folded(["10.0.0.9", "10.0.0.10"]) == "10.0.0.[9-10]"
    assert folded(["n1", "n3"]) is None and folded(["a", "b"]) is None and folded(["a", "a"]) == "a"


def test_the_page_has_every_key_of_a_host() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(name, kind, meaning) for name, kind, meaning in HOST_KEYS]


def test_the_example_can_be_read(tmp_path: Path) -> None:
    from console.deploy.hosts.inventory import EXAMPLE

    assert len(read_hosts(settings_of(tmp_path, EXAMPLE))) == 4
    commented = re.findall(r"^# (\w+ = .+?)(?:  +# .*)?$", EXAMPLE, re.MULTILINE)
    for line in commented:  # what is commented out is right too
        settings_of(tmp_path, line) if line.startswith(("login_address", "agent_port = 7117")) else read_hosts(
            settings_of(tmp_path, f'[[hosts]]\nname = "node[001-004]"\n{line}\n')
        )
    assert len(commented) >= 12


def test_a_table_that_is_about_to_be_written() -> None:
    assert [host.name for host in check_table({"name": "n[1-2]", "processors": "auto"})] == ["n1", "n2"]
