"""Described protobuf files: their form, their types, and the published files of P4Runtime."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from capabilities import need

from ina.p4.bfrt import description as bfrt
from ina.p4.compiler.p4info.descriptions import STATUS, Field, File
from ina.p4.p4runtime import description as p4runtime
from ina.p4.rpc.stub import Stub

ROOT = Path(__file__).parents[3]
MESSAGES = """
Outer one=1:Inner* kind/a=2:Colour kind/b=3:.x.Far by_name=4:map<string,Outer>
Outer.Inner text=1:string up=2:Inner
Inner
"""


@pytest.mark.fast
def test_names_are_looked_up_from_the_innermost_message_outwards():
    fields = File("a.proto", "p", (), MESSAGES, "Colour RED BLUE=5 GREEN").fields()
    assert fields["Outer"] == [
        Field("one", 1, ".p.Outer.Inner", repeated=True), Field("a", 2, ".p.Colour", group="kind"),
        Field("b", 3, ".x.Far", group="kind"), Field("by_name", 4, ".p.Outer", repeated=True, key="string"),
    ]
    assert fields["Outer.Inner"] == [Field("text", 1, "string"), Field("up", 2, ".p.Outer.Inner")]
    assert fields["Inner"] == []


@pytest.mark.fast
def test_numbers_of_an_enumeration_go_on_from_the_last():
    assert File("a.proto", "p", (), MESSAGES, "Colour RED BLUE=5 GREEN").values() == {"Colour": {"RED": 0, "BLUE": 5, "GREEN": 6}}


@pytest.mark.fast
@pytest.mark.parametrize("described", [p4runtime, bfrt], ids=["p4runtime", "bfrt"])
def test_the_types_have_every_message(described):
    text = str(Stub(described.FILES, described.NAMES))
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    assert len(classes) == 1 + len(described.NAMES) + sum(len(file.fields()) for file in described.FILES)


ANOTHER_STATUS = """
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

file = FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc", syntax="proto3")
file.message_type.add(name="Status").field.add(name="code", number=1, label=1, type=5)
descriptor_pool.Default().Add(file)
"""
OURS = "import ina.p4.p4runtime.messages, ina.p4.bfrt.messages\n"


@pytest.mark.build
@pytest.mark.parametrize("program", [ANOTHER_STATUS + OURS, OURS + ANOTHER_STATUS], ids=["theirs-first", "ours-first"])
def test_a_client_library_may_register_the_same_files(program):
    need("p4runtime")
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.build
@pytest.mark.parametrize("order", ["import finsy\n" + OURS, OURS + "import finsy"], ids=["finsy-first", "ours-first"])
def test_finsy_in_the_same_process(order):
    need("p4runtime", "finsy")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([os.environ["INA_FINSY_PYTHON"], "-c", order], check=True, env=environment)


def published(name: str) -> bytes:
    """The descriptor of a .proto file in the package p4runtime, whose code fits only some versions of protobuf."""
    path = Path(str(distribution("p4runtime").locate_file(f"{name.removesuffix('.proto')}_pb2.py")))
    literals = [n.value for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.Constant)]
    return max((literal for literal in literals if isinstance(literal, bytes)), key=len)


def summary(file):
    """Fields and values of all messages, without options."""
    fields, enums = [], [("", e.name, [(v.name, v.number) for v in e.value]) for e in file.enum_type]

    def walk(scope, messages):
        for message in messages:
            name, groups = f"{scope}.{message.name}", [group.name for group in message.oneof_decl]
            for f in message.field:
                fields.append((name, f.name, f.number, f.type, f.type_name, f.label, groups[f.oneof_index] if groups else ""))
            enums.extend((name, e.name, [(v.name, v.number) for v in e.value]) for e in message.enum_type)
            walk(name, message.nested_type)

    walk("", file.message_type)
    return file.name, file.package, sorted(file.dependency), fields, enums


@pytest.mark.build
@pytest.mark.parametrize("file", p4runtime.FILES, ids=lambda file: file.name)
def test_our_description_is_the_published_one(file):
    need("p4runtime", "p4runtime-package")
    from google.protobuf import descriptor_pb2

    from ina.p4.rpc.message_classes import described

    assert summary(described(file)) == summary(descriptor_pb2.FileDescriptorProto.FromString(published(file.name)))


@pytest.mark.build
def test_our_status_is_the_published_one():
    need("p4runtime", "p4runtime-package")
    from google.protobuf import descriptor_pb2
    from google.rpc import status_pb2

    from ina.p4.rpc.message_classes import described

    theirs = descriptor_pb2.FileDescriptorProto.FromString(status_pb2.DESCRIPTOR.serialized_pb)
    assert summary(described(STATUS)) == summary(theirs)
