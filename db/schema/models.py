"""The present tables of the system database (docs/database.md explains them).

Migrations have frozen copies; a test compares their result with these models.
"""

from __future__ import annotations

from typing import Any

from db.store.orm import pw

#: Columns that only the CPA's account may read: digests of cookies, keys that could fetch new cookies, and texts of
#: users (db/allocation/full_texts.py).
SECRET_COLUMNS: dict[str, frozenset[str]] = {
    "partition": frozenset(("admin_cookie", "allocation_cookie", "request_key")),
    "launcher": frozenset(("cookie", "request_key", "full_command", "full_reason")),
    "waiting": frozenset(("request_key", "request", "place", "cpa")),
    "post_back": frozenset(("request_key", "place", "cpa")),
}


class LongText(pw.TextField):
    """Text past 64 KiB: the rank list of a launch over the whole machine."""

    field_type = "LONGTEXT"


class Mesh(pw.Model):
    """One row, id 1. Every transaction that changes anything locks it first."""

    id = pw.IntegerField(primary_key=True)
    boot_id = pw.CharField(max_length=64)
    name = pw.CharField(max_length=255)
    topology = LongText(null=True)
    schema_version = pw.IntegerField()
    counter = pw.BigIntegerField()
    trimmed_to = pw.BigIntegerField()
    next_partition = pw.BigIntegerField()
    next_launcher = pw.BigIntegerField()
    booted_at = pw.DoubleField()

    class Meta:
        table_name = "mesh"


class Node(pw.Model):
    """A machine, or a share of one, with a PCT on it."""

    id = pw.IntegerField(primary_key=True)
    name = pw.CharField(max_length=255, unique=True)
    role = pw.CharField(max_length=16)
    address = pw.CharField(max_length=255)
    state = pw.CharField(max_length=16)
    reason = pw.TextField()
    by = pw.CharField(max_length=64)
    boot_id = pw.CharField(max_length=64)
    incarnation = pw.BigIntegerField()
    agent = pw.CharField(max_length=64)
    state_at = pw.DoubleField()
    side = pw.IntegerField(default=1)
    rca = pw.CharField(max_length=255, default="")
    side_from = pw.BigIntegerField(default=0)
    drain_at = pw.DoubleField(null=True)
    drain_reason = pw.CharField(max_length=600, default="")
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "node"


class NodeResource(pw.Model):
    """GPUs and other counted devices of nodes."""

    node = pw.IntegerField()
    name = pw.CharField(max_length=64)
    total = pw.IntegerField()
    in_use = pw.IntegerField()
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "node_resource"
        primary_key = pw.CompositeKey("node", "name")


class Processor(pw.Model):
    """The Compute Processor Allocation Table (row A2)."""

    id = pw.IntegerField(primary_key=True)
    node = pw.IntegerField(index=True)
    slot = pw.IntegerField()
    alloc_mode = pw.CharField(max_length=16)
    reserved_for = pw.CharField(max_length=255, null=True)
    partition = pw.BigIntegerField(null=True)
    launcher = pw.BigIntegerField(null=True)
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "processor"


class Partition(pw.Model):
    """The Partition Table (row A2)."""

    id = pw.BigIntegerField(primary_key=True)
    admin_cookie = pw.CharField(max_length=64)
    allocation_cookie = pw.CharField(max_length=64)
    user = pw.CharField(max_length=255)
    uid = pw.BigIntegerField()
    batch_job = pw.CharField(max_length=255, null=True)
    size = pw.IntegerField()
    processors = LongText()
    created_at = pw.DoubleField()
    max_in_use = pw.IntegerField()
    batch_job_error = pw.BooleanField()
    request_key = pw.CharField(max_length=64, unique=True)
    ended_at = pw.DoubleField(null=True, index=True)
    login_processor = pw.IntegerField(null=True)
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "partition"


class Launcher(pw.Model):
    """The Launcher Table (row A2)."""

    id = pw.BigIntegerField(primary_key=True)
    cookie = pw.CharField(max_length=64)
    partition = pw.BigIntegerField(index=True)
    login_processor = pw.IntegerField()
    pid = pw.IntegerField()
    pid_started = pw.BigIntegerField()
    user = pw.CharField(max_length=255)
    uid = pw.BigIntegerField()
    command = LongText()
    size = pw.IntegerField()
    processors = LongText()
    ranks = LongText(null=True)
    root = pw.CharField(max_length=255)
    state = pw.CharField(max_length=16)
    created_at = pw.DoubleField()
    pending_until = pw.DoubleField()
    started_at = pw.DoubleField(null=True)
    ended_at = pw.DoubleField(null=True, index=True)
    exit_status = pw.IntegerField(null=True)
    abnormal = pw.BooleanField()
    reason = pw.TextField()
    resources = pw.TextField()
    request_key = pw.CharField(max_length=64, unique=True)
    changed = pw.BigIntegerField(index=True)
    nice = pw.BooleanField(default=False)
    end_by = pw.DoubleField(null=True)
    time_s = pw.DoubleField(null=True)
    full_command = LongText(null=True)
    full_reason = pw.TextField(null=True)
    gives_back = pw.BooleanField(default=False)

    class Meta:
        table_name = "launcher"


class Waiting(pw.Model):
    """Waiting requests, first in, first out."""

    id = pw.BigAutoField()
    request_key = pw.CharField(max_length=64, unique=True)
    partition = pw.BigIntegerField(null=True)
    uid = pw.BigIntegerField()
    user = pw.CharField(max_length=255)
    login_processor = pw.IntegerField()
    pid = pw.IntegerField()
    pid_started = pw.BigIntegerField()
    size = pw.IntegerField()
    request = LongText()
    created_at = pw.DoubleField()
    deadline_at = pw.DoubleField()
    changed = pw.BigIntegerField(index=True)
    partial = pw.BooleanField(default=False)
    place = pw.CharField(max_length=255, default="")
    cpa = pw.CharField(max_length=255, default="")
    sequence = pw.IntegerField(default=0)
    time_s = pw.DoubleField(null=True)
    manager = pw.CharField(max_length=64, default="")
    part = pw.CharField(max_length=64, default="")
    precedence = pw.IntegerField(default=0)

    class Meta:
        table_name = "waiting"
        indexes = (
            (("partition", "login_processor", "id"), False),
            (("partition", "login_processor", "part", "precedence", "id"), False),
        )


class PostBack(pw.Model):
    """A grant that its requester has not confirmed yet."""

    id = pw.BigAutoField()
    request_key = pw.CharField(max_length=64)
    sequence = pw.IntegerField()
    launcher = pw.BigIntegerField()
    missing = pw.IntegerField()
    place = pw.CharField(max_length=255)
    cpa = pw.CharField(max_length=255)
    uid = pw.BigIntegerField()
    failures = pw.IntegerField(default=0)

    class Meta:
        table_name = "post_back"
        indexes = ((("request_key", "sequence"), True),)


class Event(pw.Model):
    """Events for people. Rows are only added."""

    id = pw.BigAutoField()
    at = pw.DoubleField()
    kind = pw.CharField(max_length=32)
    node = pw.IntegerField(null=True)
    launcher = pw.BigIntegerField(null=True)
    partition = pw.BigIntegerField(null=True)
    text = pw.TextField()
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "event"


class StateLocation(pw.Model):
    """The location of a job's state object. Nothing else about a job is in this database."""

    uuid = pw.CharField(max_length=36, primary_key=True)
    url = pw.CharField(max_length=255)
    counter = pw.BigIntegerField()
    proxied = pw.BooleanField()
    uid = pw.BigIntegerField()
    standby = pw.CharField(max_length=255, default="")
    goes_to = pw.CharField(max_length=255, default="", index=True)

    class Meta:
        table_name = "state_location"


#: Every table by its name in the database.
TABLES: dict[str, type[pw.Model]] = {
    "mesh": Mesh,
    "node": Node,
    "node_resource": NodeResource,
    "processor": Processor,
    "partition": Partition,
    "launcher": Launcher,
    "waiting": Waiting,
    "event": Event,
    "state_location": StateLocation,
    "post_back": PostBack,
}


def columns_of(table: type[pw.Model]) -> list[pw.Field[Any]]:
    """The columns of a table in their order."""
    found: list[pw.Field[Any]] = table.select().selected_columns
    return found
