"""Access to a switch over P4Runtime and BFRuntime: only with its certificates, or by permission to open its socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

import grpc  # noqa: E402
from waiting import until  # noqa: E402

from ina.p4.bfrt.device import Device as BfrtDevice  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget  # noqa: E402
from ina.p4.bfrt.service import Server as BfrtServer  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime import service  # noqa: E402
from ina.p4.p4runtime.device import Device  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.p4runtime.remote_switch import RemoteSwitch  # noqa: E402
from ina.p4.p4runtime.service import Server  # noqa: E402
from ina.p4.rpc import certificates, folder  # noqa: E402
from ina.p4.rpc.connections import Access  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402

ROOT = Path(__file__).parent.parent.parent.parent
PROGRAM = ROOT / "tests/programs/served/controlled.p4"
CAPABILITIES = "/p4.v1.P4Runtime/Capabilities"
SHORT = 2.0  # seconds that a client waits for a server that refuses it
STRANGER = 1002


@pytest.fixture
def tls(tmp_path) -> Path:
    certificates.make(tmp_path / "tls")
    return tmp_path / "tls"


@pytest.fixture
def address(tls):
    """The address of a P4Runtime server with the certificates of `tls`."""
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0", Access(tls)) as server:
        yield server.address


def answer(channel: grpc.Channel) -> str:
    """The server's P4Runtime version, or the code of its refusal."""
    with channel:
        try:
            call = channel.unary_unary(CAPABILITIES, p4.CapabilitiesRequest.SerializeToString, p4.CapabilitiesResponse.FromString)
            return call(p4.CapabilitiesRequest(), timeout=120).p4runtime_api_version
        except grpc.RpcError as error:
            return error.code().name


@pytest.mark.build
def test_who_connects_and_says_nothing_is_soon_hung_up_on(tls, monkeypatch):
    """gRPC's default of two minutes would let idle connections use up the switch's descriptors."""
    handshake = "grpc.server_handshake_timeout_ms"
    assert dict(service.OPTIONS)[handshake] <= 30_000
    monkeypatch.setattr(service, "OPTIONS", list({**dict(service.OPTIONS), handshake: 500}.items()))
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0", Access(tls)) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), 120) as silent:
            assert not silent.recv(1), "the end of the connection"



def client(tls: Path, own: tuple[str, str] | None = ("client.key", "client.crt"), trusted: Path | None = None) -> grpc.Channel:
    """A gRPC channel that trusts `trusted` (default: the folder's) and presents the certificate `own`."""
    authority = ((trusted or tls) / "ca.crt").read_bytes()
    key, chain = ((tls / name).read_bytes() for name in own) if own else (None, None)
    return grpc.ssl_channel_credentials(authority, key, chain)


@pytest.mark.build
def test_clients_with_the_certificates_are_served(tls, address):
    assert answer(Access(tls).connect(address)) == "1.5.0"
    for name in ("127.0.0.1", "localhost"):  # as clients that do not know server.name
        assert answer(grpc.secure_channel(f"{name}:{address.rpartition(':')[2]}", client(tls))) == "1.5.0"
    with pytest.raises(EntityError, match="no program"):
        RemoteSwitch(address, access=Access(tls)).entities  # noqa: B018


@pytest.mark.build
def test_nobody_else_is_served(tls, address, tmp_path):
    certificates.make(tmp_path / "other")
    strangers = {
        "no TLS": grpc.insecure_channel(address),
        "no certificate": grpc.secure_channel(address, client(tls, None)),
        "another authority's": grpc.secure_channel(address, client(tmp_path / "other", trusted=tls)),
    }
    assert {name: answer(channel) for name, channel in strangers.items()} == dict.fromkeys(strangers, "UNAVAILABLE")


@pytest.mark.build
def test_no_other_server_is_taken_for_the_switch(tls, tmp_path):
    """Clients refuse a server of another authority, and one with only a client's certificate."""
    certificates.make(tmp_path / "other")
    posing = tmp_path / "posing"
    shutil.copytree(tls, posing)
    for kind in ("key", "crt"):
        shutil.copy(posing / f"client.{kind}", posing / f"server.{kind}")
    for theirs in (tmp_path / "other", posing):
        with Device(device_id=1) as device, Server(device, "127.0.0.1:0", Access(theirs)) as server:
            assert answer(Access(tls).connect(server.address)) == "UNAVAILABLE"


@pytest.mark.build
def test_the_errors_say_what_to_try(tls, address, tmp_path):
    with pytest.raises(TimeoutError, match="needs certificates, leave out --insecure"):
        RemoteSwitch(address, timeout=SHORT, access=Access(insecure=True))
    certificates.make(tmp_path / "other")
    with pytest.raises(TimeoutError, match=f"refuses the certificates in {tmp_path}/other"):
        RemoteSwitch(address, timeout=SHORT, access=Access(tmp_path / "other"))
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/none: no certificates for {address}: copy ca.crt"):
        RemoteSwitch(address, access=Access(tmp_path / "none"))
    assert not (tmp_path / "none").exists(), "only servers make certificates"


@pytest.mark.build
def test_bfruntime_asks_for_them_too(tls):
    program = compile_program(ROOT / "p4" / "tofino" / "switchml.p4", defines={"VALUES": "32"}, include_dirs=[ROOT / "p4"])
    with Switch(program.so_path) as switch, BfrtServer(BfrtDevice(switch, "switchml"), access=Access(tls)) as server:
        with BfRuntimeTarget(server.address, access=Access(tls)) as target:
            assert target.p4info.tables
        with pytest.raises(TimeoutError, match="leave out --insecure"):
            BfRuntimeTarget(server.address, timeout=SHORT, access=Access(insecure=True))


@pytest.mark.build
def test_a_server_without_certificates_is_asked_for_by_name(tls):
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0", Access(insecure=True)) as server:
        assert answer(grpc.insecure_channel(server.address)) == "1.5.0"
        assert answer(Access(tls).connect(server.address)) == "UNAVAILABLE", "a client with certificates does not do without"


@pytest.mark.build
def test_a_socket_is_its_users_alone(tmp_path):
    path = tmp_path / "p4runtime"
    with Device(device_id=1) as device, Server(device, f"unix:{path}") as server:
        assert path.stat().st_mode & 0o777 == 0o600
        assert answer(Access().connect(server.address)) == "1.5.0"


@pytest.mark.build
def test_a_socket_that_is_served_is_taken(tmp_path):
    """gRPC itself would put its own in the place of the file."""
    path = tmp_path / "p4runtime"
    with Device(device_id=1) as device, Device(device_id=2) as other:
        with Server(device, f"unix:{path}") as server:
            with pytest.raises(OSError, match="Address already in use"), Server(other, f"unix:{path}"):
                pass
            assert answer(Access().connect(server.address)) == "1.5.0"
        with socket.socket(socket.AF_UNIX) as left:
            path.unlink(missing_ok=True)
            left.bind(str(path))  # as a server that was killed leaves it
        with Server(other, f"unix:{path}") as server:
            assert answer(Access().connect(server.address)) == "1.5.0"


@pytest.mark.root
def test_no_socket_of_a_stranger_is_taken_for_the_switch(tmp_path):
    need("root")
    path = tmp_path / "p4runtime"
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(path))
        shutil.chown(path, STRANGER)
        with pytest.raises(PermissionError, match=f"{path}: this socket is user {STRANGER}'s"):
            Access().connect(f"unix:{path}")


# ---- the folder


@pytest.mark.build
def test_the_folder_is_made_once_and_is_its_users_alone(tmp_path):
    """Concurrent processes create one folder."""
    place = tmp_path / "config" / "tls"
    start, errors = threading.Barrier(8), []

    def make() -> None:
        start.wait(120)
        try:
            certificates.of_server(place, "127.0.0.1")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and [path.name for path in place.parent.iterdir()] == ["tls"]
    assert {path.name for path in place.iterdir()} == {"ca.crt", "ca.key", "client.crt", "client.key", "server.name"}
    assert place.stat().st_mode & 0o777 == 0o700 and {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


@pytest.mark.build
def test_folders_for_clients_need_no_more_than_what_is_copied(tls, address, tmp_path):
    (tmp_path / "copy").mkdir()
    for name in folder.FOR_CLIENTS:
        shutil.copy(tls / name, tmp_path / "copy")
    assert answer(Access(tmp_path / "copy").connect(address)) == "1.5.0"
    with pytest.raises(OSError, match=f"{tmp_path}/copy/server.key: .* expected a folder with server.key, server.crt, ca.crt"):
        certificates.of_server(tmp_path / "copy", "127.0.0.1")


@pytest.mark.build
def test_certificates_from_elsewhere(tls, tmp_path):
    """A folder filled by another authority: servers present its certificates, and clients check the address."""
    place = tmp_path / "own"
    place.mkdir(mode=0o700)
    key, chain, _ = certificates.of_server(tls, "127.0.0.1")
    for name, data in (("server.key", key), ("server.crt", chain)):
        (place / name).write_bytes(data)
        (place / name).chmod(0o600)
    for name in ("ca.crt", "client.crt", "client.key"):
        shutil.copy(tls / name, place)
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0", Access(place)) as server:
        assert answer(Access(place).connect(server.address)) == "1.5.0"


@pytest.mark.build
@pytest.mark.parametrize("name, mode, message", [
    ("client.key", 0o640, "others can read this key .mode 640.: chmod 600 .*client.key"),
    (".", 0o777, "others can write in this folder .mode 777.: chmod go-w "),
])
def test_a_folder_that_is_not_its_users_alone_is_refused(tls, address, name, mode, message):
    (tls / name).chmod(mode)
    with pytest.raises(PermissionError, match=message):
        Access(tls).connect(address)


@pytest.mark.build
def test_where_the_folder_is(monkeypatch, tmp_path):
    monkeypatch.delenv("INA_TLS")
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert Access().certificates == tmp_path / ".config" / "ina" / "tls"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    assert Access().certificates == Path("/elsewhere/ina/tls")
    monkeypatch.setenv("INA_TLS", "/named")
    assert Access().certificates == Path("/named") and Access(Path("/said")).certificates == Path("/said")


# ---- a switch run by root, and another user of the machine

ATTACK = """
import encodings.idna, encodings.latin_1, json, os, sys
import grpc, grpc._channel  # which grpc imports when it is first needed
sys.path.insert(0, {tests!r})
from p4runtime_client import Client, Failure
from ina.p4.p4runtime.messages import p4
from ina.p4.rpc.connections import Access
os.setgroups([]); os.setresgid(1002, 1002, 1002); os.setresuid(1002, 1002, 1002)  # Python itself may be root's alone
given = json.load(sys.stdin)
client = Client(given["address"], Access(insecure=True))
said = []
try:
    stream = client.stream()
    stream.arbitrate(1)
    for text in given["configs"]:
        config = p4.ForwardingPipelineConfig(p4_device_config=text.encode("latin-1"))
        try:
            client.set_pipeline("VERIFY_AND_COMMIT", config)
            said.append("done")
        except Failure as failure:
            said.append(str(failure))
except Failure as failure:
    said.append("out: " + failure.code)
print(json.dumps(said), flush=True)
os._exit(0)
"""


class Running:
    """`ina switch run` without a program, and its standard output (`banner`)."""

    def __init__(self, *arguments: str):
        command = [sys.executable, "-m", "ina.cli", "switch", "run", "--no-p4", *arguments]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=ROOT)
        self.banner = ""
        while "P4Runtime: " not in self.banner:
            line = self.process.stdout.readline()
            assert line, self.errors
            self.banner += line
        self.address = self.banner.rpartition("P4Runtime: ")[2].split(",")[0]

    def warned(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(120) == 0, self.warned()
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def open_folder():
    """A folder that every user can read."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        yield Path(scratch)


def attack(address: str, configs: list[bytes]) -> list[str]:
    """Sends these configs to a switch as user 1002; returns its answers."""
    request = json.dumps({"address": address, "configs": [data.decode("latin-1") for data in configs]})
    code = ATTACK.format(tests=str(ROOT / "tests"))
    process = subprocess.run([sys.executable, "-c", code], input=request, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.root
def test_another_user_does_not_get_in(open_folder):
    need("root")
    mark, library = open_folder / "ran", open_folder / "evil.so"
    evil(open_folder, mark)
    with Running("--grpc", "127.0.0.1:0") as switch:
        assert f"for clients with the certificates in {os.environ['INA_TLS']}" in switch.banner
        assert attack(switch.address, [str(library).encode()]) == ["out: UNAVAILABLE"]
    path = open_folder / "p4runtime"
    with Running("--grpc", f"unix:{path}"):
        assert attack(f"unix:{path}", [str(library).encode()]) == ["out: UNAVAILABLE"]
    assert not mark.exists()


@pytest.mark.root
def test_another_user_neither_runs_code_nor_reads_files(open_folder):
    """A switch open to everybody loads no code that a user sends or names, and quotes no file of root."""
    need("root")
    mark, library, secret = open_folder / "ran", open_folder / "evil.so", open_folder / "shadow"
    code = evil(open_folder, mark)
    secret.write_text("root:$6$secret-of-the-owner:19000:0:99999:7:::\n" * 3)
    secret.chmod(0o600)
    configs = [code, str(library).encode(), json.dumps({"program": str(library)}).encode(), str(secret).encode(),
               json.dumps({"program": str(secret)}).encode(), json.dumps({"compiled": str(library)}).encode(),
               f'#include "{secret}"\n'.encode(), f'#line 1 "{secret}"\nnonsense\n'.encode(),
               json.dumps({"source": f"#include <{secret}>"}).encode()]
    with Running("--grpc", "127.0.0.1:0", "--insecure") as switch:
        assert "for whoever reaches it (--insecure)" in switch.banner
        until(lambda: f"whoever reaches {'127.0.0.1:0'} can drive this switch" in switch.warned(), "a warning")
        answers = attack(switch.address, configs)
        assert len(answers) == len(configs) and all(text.startswith("INVALID_ARGUMENT: ") for text in answers), answers
        assert "secret-of-the-owner" not in json.dumps(answers) + switch.warned() and not mark.exists()


def evil(place: Path, mark: Path) -> bytes:
    """A shared object that leaves a mark as soon as it is loaded."""
    (place / "evil.c").write_text(
        f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{mark}", "w")); }}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", place / "evil.c", "-o", place / "evil.so"], check=True)
    return (place / "evil.so").read_bytes()
