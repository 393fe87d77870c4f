"""The first schema. A frozen copy: db/schema/models.py changes, this does not."""

from __future__ import annotations

from typing import Any

import peewee as pw

MYSQL_TABLES = ["ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"]


class Table(pw.Model):
    pass


class LongText(pw.TextField):
    field_type = "LONGTEXT"


class Mesh(Table):
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


class Node(Table):
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
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "node"


class NodeResource(Table):
    node = pw.IntegerField()
    name = pw.CharField(max_length=64)
    total = pw.IntegerField()
    in_use = pw.IntegerField()
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "node_resource"
        primary_key = pw.CompositeKey("node", "name")


class Processor(Table):
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


class Partition(Table):
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
    changed = pw.BigIntegerField(index=True)

    class Meta:
        table_name = "partition"


class Launcher(Table):
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

    class Meta:
        table_name = "launcher"


class Waiting(Table):
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

    class Meta:
        table_name = "waiting"


class Event(Table):
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


TABLES = (Mesh, Node, NodeResource, Processor, Partition, Launcher, Waiting, Event)


def up(migrator: Any, db: pw.Database) -> None:
    for table in TABLES:
        if isinstance(db, pw.MySQLDatabase):
            table._meta.table_settings = MYSQL_TABLES
        with table.bind_ctx(db):
            table.create_table(safe=True)
    with Mesh.bind_ctx(db):
        if not Mesh.select().exists():
            Mesh.insert(
                id=1,
                boot_id="",
                name="",
                topology=None,
                schema_version=1,
                counter=0,
                trimmed_to=0,
                next_partition=1,
                next_launcher=1,
                booted_at=0.0,
            ).execute()
