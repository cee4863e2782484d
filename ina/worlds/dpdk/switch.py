"""Runs a P4 program as a switch on DPDK's devices.

    ina-dpdk-switch --program p4/switchml.p4 --port 0=memif:/run/ina.sock --port 1=memif:/run/ina.sock --control /run/ina-control
    ina-dpdk-switch -l 2 -a 17:00.0 -a 17:00.1 -- --program p4/switchml.p4 --port 0=17:00.0 --port 1=17:00.1 \
        --control tcp:10.0.0.1:9400

EAL's arguments come first, then "--"; without them it gets huge pages if enough are free, the PCI devices that are named, and one
lcore. Jobs are admitted at the --control socket (INA_SWITCH for torch), which people can ask, too (ina counters, ina top);
any controller can drive it over P4Runtime (--grpc). SIGUSR1 prints the counters; Ctrl-C ends it with a summary.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ina.aggregation.control_socket.peers import add_user_option
from ina.base import command, signals, tokens
from ina.base.bounds import SECONDS, real, whole
from ina.base.closing import closing_on_error
from ina.net import dpdk
from ina.net.dpdk import DpdkError
from ina.net.ports import MAX_FRAME, MIN_FRAME
from ina.p4.rpc import connections as rpc
from ina.p4.runtime.shards import ShardedSwitch, pinned, shard_key
from ina.worlds.dpdk import devices

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ina-dpdk-switch", usage="%(prog)s [EAL arguments --] --program FILE --port N=DEVICE ...",
                                  description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--program", type=Path, required=True, metavar="FILE", help="a P4 source, or a compiled program (.so)")
    top.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="preprocessor macro")
    top.add_argument("-I", dest="include", action="append", default=[], type=Path, metavar="FOLDER", help="include folder")
    top.add_argument("--port", action="append", required=True, metavar="N=DEVICE",
                     help="port number (0..509) and device: a PCI address, memif:SOCKET, or a virtual device with its arguments "
                          "(net_af_packet0,iface=eth1); once for each port")
    top.add_argument("--control", metavar="SOCKET",
                     help="where jobs are admitted: an abstract name, a path with a '/', or tcp:HOST:PORT")
    add_user_option(top)
    top.add_argument("--shards", type=whole(0, 16), default=0, metavar="N",
                     help="processors that slots are spread over, a power of two (default: as many as EAL's arguments name "
                          "lcores, if the program declares that it can be)")
    top.add_argument("--job-slots", type=whole(1, 8192), default=128, metavar="N",
                     help="slots of a job that asks for none (default: %(default)s)")
    top.add_argument("--grpc", metavar="HOST:PORT",
                     help="where P4Runtime is served, also unix:PATH, which its user alone can open")
    rpc.add_arguments(top, server=True)
    top.add_argument("--max-frame", type=whole(0, 65535), default=0, metavar="BYTES",
                     help="longest frame (default: the program's, at least 1514)")
    top.add_argument("--batch", type=whole(1, 64), default=32, metavar="N",
                     help="frames taken from a port at once, up to 64 (default: %(default)s)")
    top.add_argument("--duration", type=real(0, SECONDS), default=0.0, metavar="SECONDS",
                     help="end after so long (default: at Ctrl-C)")
    top.add_argument("--json", action="store_true", help="counters and summary as JSON, one line each")
    top.add_argument("-v", "--verbose", action="store_true", help="say what happens")
    devices.add_arguments(top)
    return top


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 after Ctrl-C, SIGTERM or --duration; 1: an error, printed on standard error; 2: wrong arguments; 130, 143:
    Ctrl-C, SIGTERM before it served."""
    return command.run("ina-dpdk-switch", lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    from ina.base.cc import BuildError
    from ina.p4.compiler.errors import CompileError

    eal, own = devices.halves(sys.argv[1:] if argv is None else argv)
    options = parser()
    args = options.parse_args(own)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if args.verbose else logging.WARNING,
                        format="ina-dpdk-switch: %(message)s")
    try:
        ports = parse_ports(args.port)
        _check(args, eal)
    except ValueError as error:
        options.error(str(error))
    try:
        _run(args, eal, ports)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except (BuildError, DpdkError, OSError, ValueError, RuntimeError) as error:
        print(f"ina-dpdk-switch: {error}", file=sys.stderr)
        return 1
    return 0


def parse_ports(texts: list[str]) -> dict[int, str]:
    """Parses ``N=DEVICE`` of every port. Raises ValueError."""
    devices_by_port: dict[int, str] = {}
    for text in texts:
        number, equals, device = text.partition("=")
        if not equals or not number.isdigit() or not device or int(number) >= 510:
            raise ValueError(f"--port {text}: expected N=DEVICE with a port of 0..509, such as 0=memif:/run/ina.sock")
        if int(number) in devices_by_port:
            raise ValueError(f"--port {text}: port {number} is {devices_by_port[int(number)]} already")
        if device in devices_by_port.values() and not device.startswith("memif:"):
            raise ValueError(f"--port {text}: this device is another port already")
        devices_by_port[int(number)] = device
    return dict(sorted(devices_by_port.items()))


def _check(args: argparse.Namespace, eal: list[str]) -> None:
    """Checks the arguments before anything is started. Raises ValueError."""
    if args.max_frame and not MIN_FRAME <= args.max_frame <= MAX_FRAME:
        raise ValueError(f"--max-frame {args.max_frame}: expected {MIN_FRAME} to {MAX_FRAME} bytes")
    if args.shards & (args.shards - 1):
        raise ValueError(f"--shards {args.shards}: expected a power of two up to 16")
    args.spin = devices.spin(args.spin, eal)
    if not args.program.is_file():
        raise ValueError(f"--program {args.program}: there is no such file")
    if not (args.control or args.grpc):
        raise ValueError("nobody could fill the program's tables: say --control or --grpc")
    if args.grpc:
        rpc.check_address(args.grpc)


def _compiled(args: argparse.Namespace) -> Any:
    from ina.base import paths
    from ina.p4.compiler.build import compile_program
    from ina.p4.compiler.front.preprocess import macros
    from ina.p4.runtime import Program

    if args.program.suffix != ".p4":
        return Program(args.program)
    folders = [*args.include, paths.p4_dir()]
    return Program(compile_program(args.program, defines=macros(args.define), include_dirs=folders).so_path)


def _longest(args: argparse.Namespace, program: Any) -> int:
    """Returns the longest frame in bytes: --max-frame, or what the program's protocol needs, or Ethernet's 1514."""
    from ina.aggregation import protocols
    from ina.aggregation.controller.embedded import job_program_of

    if args.max_frame:
        longest: int = args.max_frame
        return longest
    try:
        job_program, sizes = job_program_of(args.program, program.p4info)
    except ValueError:
        return 1514
    return max(1514, protocols.frame_bytes(job_program.name, sizes.values))


def _run(args: argparse.Namespace, eal: list[str], devices_by_port: dict[int, str]) -> None:
    program = _compiled(args)
    with contextlib.ExitStack() as stack:
        cpus = _cpus(eal)
        key, shards = shard_key(program.p4info), args.shards
        if not shards:
            shards = 1 << min(len(cpus), key.count).bit_length() - 1 if key and cpus else 1
        if key is None and shards > 1:
            raise ValueError(f"--shards {shards}: {args.program} declares no shards (@shards): it runs on one processor")
        claims = [key.claims(shard, shards) if key else () for shard in range(shards)]
        opened = devices.Devices(devices_by_port, eal, _longest(args, program), server=True, mbufs=args.mbufs,
                                 descriptors=args.descriptors, shards=claims)
        stack.callback(opened.close)
        running = Running(args, program, opened, shards, cpus)
        stack.callback(running.close)
        running.start()
        running.serve()


def _cpus(eal: list[str]) -> list[int]:
    """Returns the processors in EAL's arguments; none: threads run anywhere."""
    if not eal:
        return []
    dpdk.start(eal)
    return dpdk.cpus()


class Running:
    """The running switch, the control plane that fills its tables, and its reports."""

    def __init__(self, args: argparse.Namespace, program: Any, opened: devices.Devices, shards: int = 1,
                 cpus: Sequence[int] = ()):
        self.args, self.opened, self.shards, self.cpus = args, opened, shards, cpus
        self.started = time.monotonic()
        self._closing = contextlib.ExitStack()
        self.server: Any = None
        self.token = ""  # of a control socket that other machines reach
        with closing_on_error(self._closing.close):
            self._make(program)

    def _make(self, program: Any) -> None:
        from ina.p4.runtime import Switch

        args = self.args

        def switch(program: Any) -> Any:
            return ShardedSwitch(program, self.shards, self.cpus) if self.shards > 1 else Switch(program)

        options = {"spin": args.spin, "yields": devices.YIELDS, "batch": args.batch}
        if args.grpc:
            from ina.p4.p4runtime.device import Device
            from ina.p4.p4runtime.service import Server as P4Runtime

            access = rpc.Access.of(args)
            for address in access.exposed(args.grpc):
                logging.warning("whoever reaches %s can drive this switch, and send it programs (--insecure)", address)
            device = self._closing.enter_context(Device(1, None, make=switch, **options))
            with pinned(self.cpus[0] if self.cpus else None):
                device.load(program)
            assert device.switch is not None  # of the program that was loaded
            self.switch, self._ports_of = device.switch, device
            self.grpc = self._closing.enter_context(P4Runtime(device, args.grpc, access)).address
        else:
            self.switch = self._ports_of = self._closing.enter_context(switch(program))
            with pinned(self.cpus[0] if self.cpus else None):
                self.switch.start(**options)
            self.grpc = ""
        self.host = None
        if args.control:
            from ina.worlds.dpdk.switch_host import DpdkSwitch

            self.host = DpdkSwitch(args.program, self.switch, self.opened, self.shards)
            self._closing.callback(self.host.close)

    def start(self) -> None:
        """Starts the control socket, then adds the ports: all is in place before the first packet."""
        if self.args.control:
            from ina.aggregation.control_socket.channel import elsewhere, listening
            from ina.aggregation.controller import access
            from ina.aggregation.controller.server import Server

            self.token = tokens.make() if elsewhere(self.args.control) else ""
            listener = self._closing.enter_context(listening(self.args.control, everybody=bool(self.args.user)))
            self.server = Server(listener, self.host, job_slots=self.args.job_slots, starts_server=True,
                                 access=access.Access(os.geteuid(), access.users(self.args.user)), token=self.token)
            self._closing.callback(self.server.close)
        for number, port in self.opened.ports.items():
            self._ports_of.add_port(number, port)
            self._closing.callback(self._ports_of.remove_port, number)

    def serve(self) -> None:
        """Serves until a signal, or the end of --duration."""
        before = signals.raising(lambda _number: _Stopped(), signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: self.tell(sys.stderr))
        try:
            self._greet()
            if self.args.duration:
                signal.setitimer(signal.ITIMER_REAL, self.args.duration)
            if self.server is not None:
                self.server.run()
            else:
                signals.wait()
        except _Stopped:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)
        self.tell(sys.stdout, final=True)

    def _greet(self) -> None:
        greeting = {"pid": os.getpid(), "program": str(self.args.program), "source_hash": self.switch.program.source_hash,
                    "ports": {n: device.name for n, device in self.opened.opened.items()}, "shards": self.shards}
        if self.opened.steering:
            greeting["steering"] = self.opened.steering
        if self.host is not None:
            greeting |= {key: value for key, value in self.host.describe().items() if key != "program"}
        if self.args.grpc:
            greeting["open to"] = rpc.Access.of(self.args).described(self.args.grpc)
        for key in ("control", "grpc"):
            if value := getattr(self, key, "") or getattr(self.args, key):
                greeting[key] = value
        if self.token:
            greeting["token"] = tokens.where()
        print(json.dumps(greeting), flush=True)

    # ---- reports

    def counted(self) -> dict[str, Any]:
        """Returns counters of the program, of each port (the switch's, the port's and the device's own), and mbufs."""
        ports = {}
        for number in self.opened.ports:
            stats, own, device = self.switch.port_stats(number), self.opened.errors(number), self.opened.opened[number]
            ports[number] = {
                "device": device.name, "up": device.up, "rx_packets": stats.rx_packets, "rx_bytes": stats.rx_bytes,
                "tx_packets": stats.tx_packets, "tx_bytes": stats.tx_bytes, "ecn_marks": stats.ecn_marks,
                "drops": {reason: n for reason, n in stats.drops.items() if n},
                "errors": {key: n for key, n in own.items() if n}
                | {key: n for key, n in device.stats.items() if key not in _TRAFFIC and n},
            }
        program = {name: {str(i): cell for i, cell in enumerate(cells.tolist()) if cell[0]}
                   for name, cells in self.switch.counters().items()}
        shards = [sum(switch.port_stats(n).rx_packets for n in ports) for switch in getattr(self.switch, "switches", ())]
        return {"seconds": round(time.monotonic() - self.started, 3), "ports": ports, "program": program,
                "mbufs": self.opened.mbufs(), **({"shards": shards} if shards else {})}

    def tell(self, stream: Any, final: bool = False) -> None:
        counted = self.counted()
        if self.args.json:
            print(json.dumps({"summary" if final else "counters": counted}), file=stream, flush=True)
            return
        lines = [f"{'ran' if final else 'runs'} for {counted['seconds']:.1f} s; {counted['mbufs']['in_use']} of "
                 f"{counted['mbufs']['all']} mbufs in use"]
        for number, p in counted["ports"].items():
            drops = dict(p["drops"])
            ended = drops.pop("ingress", 0)
            lost = ", ".join(f"{key} {n}" for key, n in (drops | p["errors"]).items()) or "nothing lost"
            lines.append(f"port {number} {p['device']}{'' if p['up'] else ' (down)'}: received {p['rx_packets']} "
                         f"({p['rx_bytes']} B), sent {p['tx_packets']} ({p['tx_bytes']} B); "
                         f"{ended} ended in the program; {lost}")
        if shards := counted.get("shards"):
            lines.append(f"received by shard: {', '.join(map(str, shards))}")
        print("\n".join(lines), file=stream, flush=True)

    def close(self) -> None:
        self._closing.close()


_TRAFFIC = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")


class _Stopped(BaseException):
    """Raised by a signal that ends the switch."""


if __name__ == "__main__":
    sys.exit(main())
