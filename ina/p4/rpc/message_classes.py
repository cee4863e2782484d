"""Classes of the messages of described protobuf files (compiler/p4info/descriptions.py)."""

from __future__ import annotations

from types import SimpleNamespace

from ina.base.extras import extra
from ina.p4.compiler.p4info.descriptions import SCALARS, STATUS, Field, File

with extra("p4runtime"):
    from google.protobuf import any_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.message import Message


def described(file: File) -> FileDescriptorProto:
    """The file as protobuf's compiler describes it, without options."""
    out = FileDescriptorProto(name=file.name, package=file.package, syntax="proto3", dependency=file.imports)
    messages: dict[str, DescriptorProto] = {}
    for name in file.fields():
        scope, _, last = name.rpartition(".")
        messages[name] = messages[scope].nested_type.add(name=last) if scope else out.message_type.add(name=last)
    for name, values in file.values().items():
        scope, _, last = name.rpartition(".")
        enum: EnumDescriptorProto = (messages[scope] if scope else out).enum_type.add(name=last)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    enums = {f".{file.package}.{name}" for name in file.values()}
    for name, fields in file.fields().items():
        for field in fields:
            _add(messages[name], f".{file.package}.{name}", field, enums)
    return out


def _add(message: DescriptorProto, name: str, field: Field, enums: set[str]) -> None:
    out = message.field.add(name=field.name, number=field.number)
    out.label = FieldDescriptorProto.LABEL_REPEATED if field.repeated else FieldDescriptorProto.LABEL_OPTIONAL
    kind = field.kind
    if field.key:
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(entry, "", Field("key", 1, field.key), enums)
        _add(entry, "", Field("value", 2, kind), enums)
        kind = f"{name}.{entry.name}"
    if field.group:
        groups = [group.name for group in message.oneof_decl]
        if field.group not in groups:
            message.oneof_decl.add(name=field.group)
            groups.append(field.group)
        out.oneof_index = groups.index(field.group)
    if kind in SCALARS:
        out.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        return
    out.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
    out.type_name = kind


def classes(*files: File) -> dict[str, type[Message]]:
    """Classes of the files' messages, and of google.rpc.Status, by full name; a file stands behind those that it imports. Their
    pool is their own, as a client library in the same process may have registered the same files in another version."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    for file in (STATUS, *files):
        pool.Add(described(file))
    return message_factory.GetMessageClassesForFiles([STATUS.name, *(file.name for file in files)], pool)


def namespace(package: str, by_name: dict[str, type[Message]]) -> SimpleNamespace:
    """The messages of a package as attributes; nested ones are attributes of those."""
    names = {name.removeprefix(f"{package}."): c for name, c in by_name.items() if name.startswith(f"{package}.")}
    return SimpleNamespace(**{name: c for name, c in names.items() if "." not in name})
