"""Intel's Python client of BFRuntime, assembled from a checkout of open-p4studio as its build does, for a separate interpreter.

`INA_P4STUDIO` names the checkout's folder pkgsrc; `INA_PTF_PYTHON` a Python with grpcio-tools, six and
googleapis-common-protos.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import child

DEADLINE = 300  # seconds


def package(folder: Path) -> Path:
    """Makes the package `bfrt_grpc` in `folder`, which goes on PYTHONPATH."""
    source, target = Path(os.environ["INA_P4STUDIO"], "bf-drivers/src/bf_rt"), folder / "bfrt_grpc"
    target.mkdir(parents=True)
    (target / "__init__.py").touch()
    for name in ("client.py", "info_parse.py"):
        shutil.copy(source / "bfruntime_grpc_client/python" / name, target)
    python = os.environ["INA_PTF_PYTHON"]
    find = "import google.rpc.code_pb2 as m, pathlib; print(pathlib.Path(m.__file__).parents[2])"
    common = child.run([python, "-c", find], DEADLINE, check=True).stdout.strip()
    child.run([python, "-m", "grpc_tools.protoc", "-I", source / "proto", "-I", common, f"--python_out={target}",
               f"--grpc_python_out={target}", f"--descriptor_set_out={folder / 'bfruntime.desc'}", "bfruntime.proto"],
              DEADLINE, check=True)
    stubs = target / "bfruntime_pb2_grpc.py"
    stubs.write_text(stubs.read_text().replace("\nimport bfruntime_pb2", "\nimport bfrt_grpc.bfruntime_pb2"))
    return folder


def run(script: str, folder: Path, *arguments: str, timeout: float = DEADLINE) -> str:
    """Output of `script`, a Python program that may `import bfrt_grpc.client`. Raises AssertionError with its output."""
    command = [os.environ["INA_PTF_PYTHON"], "-c", script, *arguments]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    process = child.run(command, timeout, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
