"""Records of settings, and ``keeper.json`` as an earlier version wrote it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redmesh.settings import record
from redmesh.settings.groups import HeartbeatSettings
from redmesh.settings.keeper_file import PARENT, KeeperFile, NodeEntry, read_keeper_file, read_place
from redmesh.settings.record import Field, MissingFields, NoGroup, Record

#: What the version before the records wrote for a personal mesh, and for a node of a mesh over SSH.
EARLIER = """{"mesh": "1f2e3d4c", "run": "/r", "state": "/s", "boot_id": "b0", "login": "h0", "auto": true,
 "idle_s": 900.0, "fanout": 16, "database": null, "database_file": "/s/cpa.url", "nodes": [{"id": 1, "name": "n0",
 "processors": [0, 1], "gpus": [0]}], "cpas": 2, "cleanup": null, "installed": "/i", "batch_accounts": ["pbs"],
 "admins": [], "service_memory_mb": 0, "topology": null, "placement": "", "nice_grace_s": 300.0, "managers": [],
 "max_processors": 0, "max_jobs": 0, "post_back_urls": [], "post_back_ca": "", "suspect_s": 5.0, "failed_s": 30.0,
 "pending_s": 60.0, "loading_s": 300.0, "down_s": 12, "silent_s": 10.0, "history_days": 30, "history_rows": 10000,
 "node_jobs_mb": 10240, "ends_with": [77, 5], "of_a_later_version": 1}"""
EARLIER_NODE = """{"fanout": 32, "service_memory_mb": 0, "suspect_s": 5.0, "down_s": 15.0, "silent_s": 10.0,
 "failed_s": 30.0, "node_jobs_mb": 10240, "system": true, "prolog": "/p", "epilog": "", "prolog_s": 60.0,
 "allow_root": false, "objects": "/o", "mesh": "1f2e3d4c", "protocol": 2, "owner": 0, "mesh_boot": "b0",
 "boot_id": "b0-1", "run": "/r", "state": "/s", "nodes": [{"id": 1, "name": "n1", "processors": [0]}], "cpas": 0,
 "login": null, "started_on": "", "listen": "10.0.0.1:7117", "rca": ["10.0.0.9:7117"], "trust": "/s/trust",
 "ends_with": "parent", "supervisor": "slurmstepd"}"""

_numbers = st.lists(st.integers(0, 1 << 20), max_size=3).map(tuple)
_tables = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3) | st.booleans(), max_size=2)
_values: dict[str, st.SearchStrategy[Any]] = {
    record.TEXT: st.text(max_size=5),
    record.PATH: st.text(max_size=5),
    record.COUNT: st.integers(-1, 1 << 31),
    record.SECONDS: st.floats(0, 1e9),
    record.FLAG: st.booleans(),
    record.NAMES: st.lists(st.text(max_size=3), max_size=2).map(tuple),
    record.NUMBERS: _numbers,
    record.TEXT_OR_NUMBERS: st.just(()) | st.tuples(st.integers(1, 9), st.integers(1, 9)) | st.just(PARENT),
    record.TABLE: _tables,
    record.TABLES: st.lists(_tables, max_size=2).map(tuple),
}


def a_value(one: Field) -> st.SearchStrategy[Any]:
    return st.lists(records(one.record), max_size=2).map(tuple) if one.record is not None else _values[one.kind]


def records(kind: type[Record]) -> st.SearchStrategy[Any]:
    required = {name: a_value(one) for name, one in kind.FIELDS.items() if one.required}
    others = {name: a_value(one) for name, one in kind.FIELDS.items() if not one.required}
    return st.fixed_dictionaries(required, optional=others).map(lambda values: kind(**values))


@given(records(KeeperFile), st.dictionaries(st.text(max_size=3).map("later_{}".format), st.integers(), max_size=2))
def test_a_keeper_file_comes_back_from_json_and_other_keys_are_ignored(file: KeeperFile, more: dict[str, int]) -> None:
    assert read_keeper_file({**json.loads(json.dumps(file.to_json())), **more}) == file


@given(records(NodeEntry))
def test_a_node_comes_back_from_json(node: NodeEntry) -> None:
    assert NodeEntry.from_wire(json.loads(json.dumps(node.to_wire(NoGroup)))) == node


def test_the_file_of_an_earlier_version_is_read() -> None:
    file = read_keeper_file(json.loads(EARLIER))
    assert (file.run, file.login, file.cpas, file.fanout, file.down_s, file.auto) == ("/r", "h0", 2, 16, 12.0, True)
    assert (file.database, file.database_file, file.cleanup, file.topology) == ("", "/s/cpa.url", "", None)
    assert file.nodes == (NodeEntry(id=1, name="n0", processors=(0, 1), gpus=(0,)),)
    assert file.script == (77, 5) and file.trust_directory == "/s/trust" and file.batch_accounts == ("pbs",)
    assert read_keeper_file(file.to_json()) == file


def test_the_file_of_a_node_of_an_earlier_version_is_read() -> None:
    file = read_keeper_file(json.loads(EARLIER_NODE))
    assert (file.login, file.cpas, file.owner, file.mesh_boot, file.protocol) == ("", 0, 0, "b0", 2)
    assert file.system and not file.allow_root and file.prolog == "/p" and file.objects == "/o"
    assert file.started_on == "" and file.ends_with == PARENT and file.script is None
    assert file.rca == ("10.0.0.9:7117",) and file.listen == "10.0.0.1:7117"


def test_a_command_reads_a_few_of_its_keys() -> None:
    place = read_place({**json.loads(EARLIER), "nodes": "not looked at"})
    assert (place.login, place.mesh, place.script) == ("h0", "1f2e3d4c", (77, 5))
    with pytest.raises(ValueError, match="ends_with must be a process"):
        read_place({**json.loads(EARLIER), "ends_with": [5]})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingFields, match="'mesh', 'login', 'run', 'state', 'boot_id', 'nodes', 'cpas'"):
        read_keeper_file({})
    with pytest.raises(MissingFields, match="'processors'"):
        read_keeper_file({**json.loads(EARLIER), "nodes": [{"name": "n0"}]})


@pytest.mark.parametrize("wrong", [[], "", None, 3])
def test_what_is_no_object_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        read_keeper_file(wrong)


@pytest.mark.parametrize("wrong", [{"cpas": "x"}, {"nodes": 3}, {"nodes": [3]}, {"rca": 1}, {"topology": 1}])
def test_a_value_of_another_kind_is_a_value_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be a "):
        read_keeper_file({**json.loads(EARLIER), **wrong})


def test_settings_of_the_daemons_are_written_even_if_they_have_their_defaults() -> None:
    """Otherwise another default in a later version would change a running mesh."""
    file = read_keeper_file(json.loads(EARLIER))
    assert {"suspect_s", "fanout", "pending_s", "admins", "cleanup"} <= file.to_json().keys()
    node = read_keeper_file(json.loads(EARLIER_NODE)).to_json()
    assert {"suspect_s", "fanout", "login", "cpas"} <= node.keys() and not {"pending_s", "admins"} & node.keys()


def test_a_name_that_no_field_has_is_an_error() -> None:
    file = read_keeper_file(json.loads(EARLIER))
    with pytest.raises(TypeError, match="no field 'fan_out'"):
        file.replace(fan_out=3)
    with pytest.raises(AttributeError):
        file.fanout = 3  # type: ignore[misc]
    assert file.replace(fanout=3).values_of(HeartbeatSettings) == file.values_of(HeartbeatSettings)


@pytest.mark.parametrize("ends_with", [[5], [1, 2, 3]])
def test_a_process_without_its_start_time_is_refused(ends_with: list[int]) -> None:
    with pytest.raises(ValueError, match="ends_with must be a process and its start time"):
        read_keeper_file({**json.loads(EARLIER), "ends_with": ends_with})
