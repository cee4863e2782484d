"""Capabilities of the machine that tests need. ``need("cc")`` skips with the reason where it is missing, unless the environment
variable ``INA_REQUIRE`` lists it: then the test fails, so that CI cannot lose a capability unnoticed. A test's mark follows from
its capabilities (marks.py)."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import marks
import pytest


def _module(name: str) -> Callable[[], str]:
    return lambda: "" if importlib.util.find_spec(name) else f"Python package {name} is not installed"


def _distribution(name: str) -> Callable[[], str]:
    def probe() -> str:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.distribution(name)
            return ""
        return f"Python package {name} is not installed"

    return probe


def _command(variable: str, name: str) -> Callable[[], str]:
    def probe() -> str:
        return "" if tool(variable, name) else f"{name} is neither on PATH nor named by {variable}"

    return probe


def _p4runtime() -> str:
    try:
        import ina.p4.p4runtime.service
        import ina.p4.rpc.certificates  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def _python_with(variable: str, module: str) -> Callable[[], str]:
    """Probe of a separate interpreter, for a client whose requirements conflict with ours."""

    def probe() -> str:
        python = os.environ.get(variable)
        if not python:
            return f"{variable} names no Python with {module} (an environment of its own: pip install {module})"
        try:
            process = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True)
        except OSError as error:
            return f"{variable}={python}: {error.strerror}"
        return "" if process.returncode == 0 else f"{variable}={python}: {process.stderr.strip().splitlines()[-1]}"

    return probe


def _torch_users() -> str:
    folder, names = os.environ.get("INA_TORCH_USERS", ""), ("lightning", "transformers", "accelerate", "torchft")
    there = folder and all((Path(folder) / name).is_dir() for name in names)
    return "" if there else (f"INA_TORCH_USERS names no folder with {', '.join(names)} (pip install --no-deps --target "
                             "FOLDER ...: .ci/run has the list)")


def _browser() -> str:
    folder, names = os.environ.get("INA_BROWSER_USERS", ""), ("playwright", "axe_playwright_python")
    there = folder and all((Path(folder) / name).is_dir() for name in names)
    return "" if there else (f"INA_BROWSER_USERS names no folder with {', '.join(names)} (pip install --target FOLDER -r "
                             ".ci/pins/browser.txt)")


def _deepspeed() -> str:
    folder = os.environ.get("INA_DEEPSPEED", "")
    there = folder and (Path(folder) / "deepspeed").is_dir()
    return "" if there else ("INA_DEEPSPEED names no folder with deepspeed (pip install --no-deps --target FOLDER -r "
                             ".ci/pins/deepspeed.txt)")


def _tofino_compiler() -> str:
    from ina.p4.tofino import compiler

    try:
        compiler.find()
    except compiler.NoCompiler as error:
        return str(error)
    return ""


def _bf_p4c() -> str:
    folder = os.environ.get("INA_BF_P4C")
    if not folder:
        return "INA_BF_P4C does not name a clone of p4lang/bf-p4c with its branch hanw/update-p4c-v1.2.4.16"
    return "" if any(Path(folder, name).is_file() for name in (".git/HEAD", "HEAD")) else f"INA_BF_P4C={folder}: no clone"


def _bfrt_client() -> str:
    """Intel's Python client of BFRuntime, which is in no package registry."""
    folder = os.environ.get("INA_P4STUDIO")
    if not folder:
        return "INA_P4STUDIO does not name the folder pkgsrc of a checkout of open-p4studio"
    if not Path(folder, "bf-drivers/src/bf_rt/bfruntime_grpc_client/python/client.py").is_file():
        return f"INA_P4STUDIO={folder}: there is no bf-drivers/src/bf_rt/bfruntime_grpc_client/python/client.py"
    return _python_with("INA_PTF_PYTHON", "grpc_tools, six, google.rpc.code_pb2")()


def _switchml_controller() -> str:
    import published_controller

    return published_controller.missing() or _python_with("INA_PTF_PYTHON", "yaml, colors")()


def _cuda() -> str:
    if reason := _module("torch")():
        return reason
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device"


def _netns() -> str:
    command = ["unshare", "-n", "ip", "link", "add", "ina0", "type", "veth", "peer", "name", "ina1"]
    try:
        process = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"network namespaces with veth pairs: {error}"
    return "" if process.returncode == 0 else f"no network namespaces with veth pairs: {process.stderr.strip()}"


def _tc() -> str:
    commands = "tc qdisc add dev lo root tbf rate 1mbit burst 64k latency 50ms && ip rule add iif lo ipproto udp blackhole"
    try:
        process = subprocess.run(["unshare", "-n", "sh", "-c", commands], capture_output=True, text=True)
    except OSError as error:
        return f"tc and rules in network namespaces: {error}"
    return "" if process.returncode == 0 else f"no tc, or no rules, in network namespaces: {process.stderr.strip()}"


def _opens(opener: Callable[[], object], name: str) -> str:
    try:
        opener()
    except OSError as error:
        return f"no {name}: {error.strerror}"
    return ""


def _dpdk() -> str:
    from ina.net import dpdk

    return dpdk.missing()


def _mininet() -> str:
    from ina.worlds.testbed.mininet import missing as missing_for_networks

    return missing_for_networks()


def _sanitizers(names: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("int main(void) { return 0; }\n")
        command = ["cc", f"-fsanitize={names}", str(source), "-o", f"{folder}/probe"]
        try:
            subprocess.run(command, check=True, capture_output=True)
            subprocess.run([f"{folder}/probe"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no working -fsanitize={names}: {error}"
    return ""


def _ns3() -> str:
    if not shutil.which("c++"):
        return "no C++ compiler (c++) on PATH"
    include = '#include "ns3/point-to-point-module.h"\nint main() {}\n'
    process = subprocess.run(["c++", "-x", "c++", "-fsyntax-only", "-w", "-"], input=include, capture_output=True, text=True)
    return "" if process.returncode == 0 else "ns-3 is not installed (Debian: libns3-dev)"


def _chakra() -> str:
    try:
        import chakra.schema.protobuf.et_def_pb2  # noqa: F401
    except ImportError as error:
        return f"Chakra's schema (pip install --no-deps mlc-chakra): {error}"
    return ""


def _switchml_p4() -> str:
    path = os.environ.get("INA_SWITCHML_P4")
    if not path:
        return "INA_SWITCHML_P4 does not name p4app-switchML's dev_root/p4/switchml.p4"
    return "" if Path(path).is_file() else f"INA_SWITCHML_P4={path}: there is no such file"


def _clang_fuzzer() -> str:
    if not shutil.which("clang"):
        return "no clang on PATH (Debian: clang, libclang-rt-14-dev)"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("int LLVMFuzzerTestOneInput(const char *data, long size) { return 0; }\n")
        command = ["clang", "-fsanitize=fuzzer,address,undefined", str(source), "-o", f"{folder}/probe"]
        link = subprocess.run(command, capture_output=True, text=True)
    return "" if link.returncode == 0 else f"clang links no libFuzzer: {link.stderr.strip()[-300:]} (Debian: libclang-rt-14-dev)"


# name -> probe: "" where it exists, else a message about what is missing
X86_64_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def _gcc_x86() -> str:
    there = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc" and shutil.which("gcc")
    return "" if there else "only gcc for x86-64 with glibc has kernels to choose from"


def _level(name: str) -> Callable[[], str]:
    """Tells whether this processor supports a level of x86-64, according to glibc's loader."""

    def probe() -> str:
        if reason := _gcc_x86():
            return reason
        text = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--help"], capture_output=True, text=True).stdout
        return "" if name == X86_64_LEVELS[0] or f"{name} (supported" in text else f"this processor is older than {name}"

    return probe


def _repository() -> str:
    try:
        process = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError as error:
        return f"git: {error.strerror}"
    return process.stderr.strip() if process.returncode else ""


def _idle() -> str:
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    return "" if load <= processors else f"the load is {load:.1f} on {processors} processors: times on the wall say little"


PROBES: dict[str, Callable[[], str]] = {
    "switchml-p4": _switchml_p4,
    "torch-users": _torch_users,
    "deepspeed": _deepspeed,
    "bottle": _module("bottle"),
    "waitress": _module("waitress"),
    "browser": _browser,
    "chromium": _command("INA_CHROMIUM", "chromium"),
    "ray": lambda: "" if importlib.util.find_spec("ray") else "ray is not installed (the extra ray)",
    "cc": lambda: "" if shutil.which("cc") else "no C compiler (cc) on PATH",
    "two processors": lambda: "" if len(os.sched_getaffinity(0)) > 1 else "this process may use one processor alone",
    "dpdk-testpmd": lambda: "" if shutil.which("dpdk-testpmd") else "no dpdk-testpmd on PATH (Debian: dpdk-dev)",
    "torch": _module("torch"),
    "ml_dtypes": _module("ml_dtypes"),
    "shtab": _module("shtab"),
    "yaml": _module("yaml"),
    "promtool": lambda: "" if shutil.which("promtool") else "no promtool on PATH",
    "prometheus_client": _module("prometheus_client"),
    "groff": lambda: "" if shutil.which("groff") else "no groff on PATH",
    "cuda": _cuda,
    "sklearn": _module("sklearn"),
    "matplotlib": _module("matplotlib"),
    "scapy": _module("scapy"),
    "chakra": _chakra,
    "fashion-mnist": lambda: (
        "" if Path("/usr/share/datasets/fashion-mnist").is_dir() else "Debian's dataset-fashion-mnist is not installed"
    ),
    "sanitizers": lambda: _sanitizers("address,undefined"),
    "clang-fuzzer": _clang_fuzzer,
    "atheris": _module("atheris"),
    "notebooks": lambda: _module("nbclient")() or _module("nbformat")() or _module("ipykernel")(),
    "thread-sanitizer": lambda: _sanitizers("thread"),
    "p4c-samples": lambda: (
        "" if os.environ.get("INA_P4C_SAMPLES") else "INA_P4C_SAMPLES does not name p4c's folder testdata/p4_16_samples"
    ),
    "p4c": _command("INA_P4C", "p4c-bm2-ss"),
    "bmv2": _command("INA_SIMPLE_SWITCH", "simple_switch"),
    "systemd": lambda: "" if shutil.which("systemd-analyze") else "no systemd-analyze on PATH",
    "curl": lambda: "" if shutil.which("curl") else "no curl on PATH",
    "simple_switch_grpc": _command("INA_SIMPLE_SWITCH_GRPC", "simple_switch_grpc"),
    "ns3": _ns3,
    "netns": _netns,
    "tc": _tc,
    "tshark": _command("INA_TSHARK", "tshark"),
    "mininet": _mininet,
    "dpdk": _dpdk,
    "af-xdp": lambda: _opens(lambda: socket.socket(44, socket.SOCK_RAW).close(), "AF_XDP sockets"),  # linux/socket.h
    "tun": lambda: _opens(lambda: open("/dev/net/tun", "rb").close(), "tap interfaces (/dev/net/tun)"),
    "p4runtime": _p4runtime,
    "p4runtime-package": _distribution("p4runtime"),
    "p4-examples": lambda: (
        "" if os.environ.get("INA_P4_EXAMPLES") else "INA_P4_EXAMPLES does not name a folder with other people's TNA programs"
    ),
    "bf-p4c": _bf_p4c,
    "tna-programs": lambda: (
        "" if os.environ.get("INA_P4STUDIO") or os.environ.get("INA_P4APP_SWITCHML")
        else "neither INA_P4STUDIO names a checkout of open-p4studio (pkgsrc), nor INA_P4APP_SWITCHML one of p4app-switchML"
    ),
    "p4c-tofino": _tofino_compiler,
    "bfrt-client": _bfrt_client,
    "switchml-controller": _switchml_controller,
    "ptf": lambda: (
        "INA_P4STUDIO does not name open-p4studio's folder pkgsrc"
        if not os.environ.get("INA_P4STUDIO") else _python_with("INA_PTF_PYTHON", "ptf")()
    ),
    "finsy": _python_with("INA_FINSY_PYTHON", "finsy"),
    "p4runtime-shell": _python_with("INA_P4RUNTIME_SHELL_PYTHON", "p4runtime_sh"),
    "gcc-x86-64": _gcc_x86,
    **{level: _level(level) for level in X86_64_LEVELS},
    "repository": _repository,
    "dev-full": lambda: "" if os.path.exists("/dev/full") else "there is no /dev/full",
    "idle-processors": _idle,
    "root": lambda: "" if os.geteuid() == 0 else "not running as root",
}


CHECKED = {"clang-tidy"}  # tools that make check needs, and no test


def tool(variable: str, name: str) -> str | None:
    """Path of an external program: the environment variable's value, else from PATH."""
    return os.environ.get(variable) or shutil.which(name)


@functools.cache
def missing(capability: str) -> str:
    with marks.looking():
        return PROBES[capability]()


def required() -> set[str]:
    return set(filter(None, os.environ.get("INA_REQUIRE", "").split(",")))


def unknown() -> set[str]:
    """Names in INA_REQUIRE that are misspelt."""
    return required() - PROBES.keys() - CHECKED


LEFT_OUT = "left out: "


def leave_out(reason: str) -> None:
    """Skips a test that proves nothing here though its capabilities exist: third-party programs without a comparable answer."""
    pytest.skip(LEFT_OUT + reason)


def need(*capabilities: str) -> None:
    """Skips the test (or the module) unless every capability exists; fails instead where INA_REQUIRE lists it, or
    where the test's mark does not allow it."""
    marks.needed(capabilities, sys._getframe(1).f_code.co_filename)
    for capability in capabilities:
        reason = missing(capability)
        if reason:
            if capability in required():
                pytest.fail(f"{capability} is required here: {reason}", pytrace=False)
            pytest.skip(f"needs {capability}: {reason}", allow_module_level=True)
