"""P4Runtime's protobuf messages, taken from the published Python package `p4runtime`.

The generated code in that package fits only some versions of protobuf; the serialized file descriptors inside that code
fit all of them. So the code is not imported: this module reads the descriptors from it, into a pool of their own, because a
client library in the same process may have registered the same files in another version.

`p4`: p4.v1, `config`: p4.config.v1, `Status`: google.rpc.Status, with messages as attributes (`p4.TableEntry`).
"""

from __future__ import annotations

import ast
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ina.base.extras import Missing, extra

with extra("p4runtime"):
    from google.protobuf import any_pb2, descriptor_pool, message_factory
    from google.rpc import status_pb2

    _PACKAGE = distribution("p4runtime")  # PackageNotFoundError is an ImportError

# In the order in which they import each other.
_FILES = ("p4/v1/p4data", "p4/config/v1/p4types", "p4/config/v1/p4info", "p4/v1/p4runtime")


def _descriptor(module: str) -> bytes:
    """The FileDescriptorProto that a generated module embeds: by far its longest bytes literal."""
    path = Path(str(_PACKAGE.locate_file(f"{module}_pb2.py")))
    try:
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        raise Missing(f"the package p4runtime {_PACKAGE.version} has no {path}: "
                           "pip install --force-reinstall 'ina[p4runtime]'") from error  # fmt: skip
    literals = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, bytes)]
    longest = max(literals, key=len, default=b"")
    if f"{module}.proto".encode() not in longest[:64]:
        raise Missing(f"{path} holds no descriptor of {module}.proto; the package p4runtime 1.4 to 1.6 has one: "
                           "pip install 'ina[p4runtime]'")  # fmt: skip
    return longest


def _load() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for dependency in (any_pb2, status_pb2):
        pool.AddSerializedFile(dependency.DESCRIPTOR.serialized_pb)
    for module in _FILES:
        pool.AddSerializedFile(_descriptor(module))
    names = ["google/protobuf/any.proto", "google/rpc/status.proto", *(f"{m}.proto" for m in _FILES)]
    return message_factory.GetMessageClassesForFiles(names, pool)


_CLASSES = _load()


def _namespace(package: str) -> SimpleNamespace:
    top = {n.removeprefix(package): c for n, c in _CLASSES.items() if n.startswith(package)}
    return SimpleNamespace(**{name: c for name, c in top.items() if "." not in name})


p4 = _namespace("p4.v1.")
config = _namespace("p4.config.v1.")
Status = _CLASSES["google.rpc.Status"]
