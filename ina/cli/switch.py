"""`ina switch run`: one embedded switch on network interfaces or UDP ports, driven over P4Runtime; or, with --listen, the switch
of workers on this machine and others, with its own controller."""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.base import logs, signals
from ina.base.bounds import whole
from ina.cli.errors import reported
from ina.cli.p4 import externs, preprocessing
from ina.cli.shipped import program_path
from ina.net.interfaces import address_of, mtu_of
from ina.p4.rpc import connections as rpc

if TYPE_CHECKING:
    from ina.p4.runtime import Program

PORT = 5588  # of --listen
LISTEN_ONLY = ("job_slots", "no_tags", "metrics", "metrics_token_file", "parent", "parent_token_file")
LISTEN_TAKES = ("program", "define", "listen", "log", "log_level", *LISTEN_ONLY)
NAP = 50e-6  # s: frames from sockets gather for so long, because each wake-up costs more than a frame
# BMv2's names of levels
LEVELS = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to `ina`; it sets `main`, a function of the parsed arguments."""
    switch = commands.add_parser("switch")
    verbs = switch.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = verbs.add_parser("run", help="run a P4 program on interfaces, until Ctrl-C", description=__doc__)
    programs = run.add_mutually_exclusive_group()
    programs.add_argument("program", nargs="?", type=program_path,
                          help="a P4 source, a name of ina programs, or a compiled program (.so)")
    programs.add_argument("--no-p4", action="store_true", help="wait for a controller to bring the program")
    preprocessing(run)
    externs(run)
    run.add_argument(
        "-i", "--interface", action="append", default=[], metavar="PORT@WHERE",
        help="port number and network interface (1@veth0), or UDP addresses, its own and the one peer's that is heard "
        "(1@udp:127.0.0.1:5001,127.0.0.1:6001)",
    )
    run.add_argument(
        "--listen", metavar="WHERE",
        help="sum for workers that reach this address or network interface, perhaps with a TCP port (eth0, 10.0.0.1:5588; "
        f"default: {PORT}), or, at a path with a '/', for workers of this machine, in place of what the other options say; they "
        "find it by INA_SWITCH=HOST:PORT and the socket's token, or INA_SWITCH=PATH. PROGRAM is switchml where none is named, "
        "-D VALUES=N its values in a packet",
    )
    run.add_argument("--parent", metavar="HOST:PORT", help="with --listen: pass the sum of the workers here up to that switch "
                     "process, which sums those of all servers; or the path of its socket")
    run.add_argument("--parent-token-file", type=Path, metavar="FILE",
                     help="file with the parent's token (default: INA_TOKEN, or the file in which clients find it)")
    run.add_argument("--job-slots", type=whole(1, 8192), metavar="N",
                     help="with --listen: slots of each job, the packets that each of its workers has on the way, a power of two "
                     "(default: 128)")
    run.add_argument("--no-tags", action="store_true",
                     help="with --listen: frames of workers on other machines have no tags, so forged ones spoil sums")
    run.add_argument("--metrics", metavar="[HOST:]PORT",
                     help="with --listen: serve /metrics for Prometheus there (HOST is 127.0.0.1 where none is named)")
    run.add_argument("--metrics-token-file", type=Path, metavar="FILE",
                     help="file with the token that /metrics needs, as Bearer; it is made, with mode 0600, where there is none. "
                     "On other addresses than the loopback's there must be one")
    run.add_argument(
        "--grpc", "--grpc-server-addr", default="127.0.0.1:9559", metavar="HOST:PORT",
        help="where P4Runtime is served (default: %(default)s), also unix:PATH, which its user alone can open",
    )
    run.add_argument(
        "--bfrt", default="", metavar="HOST:PORT", help="serve BFRuntime there, too, as Tofino's driver does at port 50052"
    )
    rpc.add_arguments(run, server=True)
    run.add_argument("--device-id", type=whole(0, 2**64 - 1), default=1, metavar="N",
                     help="P4Runtime's device id (default: %(default)s)")
    run.add_argument("--arch", choices=("v1model", "tna"), help="refuse programs of another architecture")
    run.add_argument("--pipes", type=whole(0, 4), default=0, metavar="N",
                     help="of a TNA program: 1 to 4, of 128 ports each (default: 2)")
    run.add_argument(
        "--cpu-port", type=whole(0, 511), default=510, metavar="N",
        help="port of packet-in and packet-out (default: %(default)s; of a TNA program the CPU's, 192 of two pipes); 0: none",
    )
    run.add_argument("--pcap", nargs="?", const=Path("."), type=Path, metavar="FOLDER", help="capture each port's frames there")
    run.add_argument("-L", "--log-level", choices=LEVELS, default="info", help="how much to tell (default: %(default)s)")
    run.add_argument("--log", choices=logs.FORMS, default=logs.FORMS[0],
                     help="form of the log on standard error: json has an object for each event (default: %(default)s)")
    run.set_defaults(main=reported(lambda args: _run(args) if args.listen is None else _listen(args, run)))


def one_line(record: logging.LogRecord) -> bool:
    """Logging filter: gRPC logs a traceback for every malformed message; as any client can send one, one line is enough."""
    if record.exc_info:
        record.msg, record.args = f"{record.getMessage()} {record.exc_info[1]}", ()
        record.exc_info = record.exc_text = None
    return True


def _run(args: argparse.Namespace) -> int:
    from ina.base import paths
    from ina.net.ports import UdpPort
    from ina.p4.compiler.build import compile_program
    from ina.p4.compiler.front.preprocess import macros
    from ina.p4.p4runtime.device import Device
    from ina.p4.p4runtime.service import Server
    from ina.p4.runtime import Program, Switch

    for option in LISTEN_ONLY:
        if getattr(args, option) not in (None, False):
            raise ValueError(f"--{option.replace('_', '-')}: it belongs to --listen: leave it out")
    if args.program is None and not args.no_p4:
        raise ValueError("PROGRAM: expected a P4 source, a name of ina programs, or --no-p4")
    logs.begin(args.log, LEVELS[args.log_level])
    logging.getLogger("grpc._common").addFilter(one_line)
    ports = dict(parse_interface(text) for text in args.interface)
    if len(ports) != len(args.interface):
        raise ValueError("-i: a port number is given twice")
    if args.cpu_port and args.cpu_port in ports:
        raise ValueError(f"-i {args.cpu_port}@{ports[args.cpu_port]}: this port is for packet-in and packet-out; "
                         "another number, or --cpu-port")
    is_source = args.program is not None and args.program.suffix == ".p4"
    if args.externs is not None and not is_source:
        raise ValueError(f"--externs {args.externs}: it belongs to a P4 source, which is compiled here")
    rpc.check_address(args.grpc)
    if args.bfrt:
        rpc.check_address(args.bfrt, "--bfrt")
    if args.job_slots is not None:
        raise ValueError(f"--job-slots {args.job_slots}: jobs come with --listen; here a controller brings theirs")
    access = rpc.Access.of(args)
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(
            Device(args.device_id, args.cpu_port or None, arch=args.arch, pipes=args.pipes, yields=0, nap=NAP)
        )
        sockets: list[UdpPort] = []

        def number_jobs(program: Program) -> None:
            job_byte = job_byte_of(program, args.program)
            for each in sockets:
                each.number_jobs(job_byte)

        device.on_program = number_jobs
        path = args.program
        if is_source:
            options = {"defines": macros(args.define), "include_dirs": [*args.include, paths.p4_dir()], "externs": args.externs}
            path = compile_program(args.program, **options).so_path
        program = None if path is None else _with_pipes(Program(path), args.pipes)
        names: list[str] = []
        opened = contextlib.ExitStack()
        stack.callback(opened.close)
        for number, where in ports.items():
            port = open_port(number, where)
            opened.callback(port.close)
            if isinstance(port, UdpPort):
                sockets.append(port)
            names.append(f"{number}@{port.name}")
            if args.pcap is not None:
                args.pcap.mkdir(parents=True, exist_ok=True)
                name = where if isinstance(where, str) else f"port{number}"
                port.with_capture(args.pcap / f"{name}.pcap")
            device.add_port(number, port)
            stack.callback(device.remove_port, number)  # before the port is closed
        if program is not None:
            device.load(program)
        interfaces = [where for where in ports.values() if isinstance(where, str)]
        if interfaces:
            logging.info("ports at %s: no queueing discipline (tc) acts on what the switch sends; where the other end is a veth, "
                         "`ethtool -K IF tx off` there, or what its kernel sends has wrong checksums", ", ".join(interfaces))
        server = stack.enter_context(Server(device, args.grpc, access))
        for address in access.exposed(args.grpc, args.bfrt):
            logging.warning("whoever reaches %s can drive this switch, and send it programs (--insecure)", address)
        with contextlib.suppress(KeyboardInterrupt):  # SIGTERM, too: a switch ends that way, and no other
            if args.bfrt:
                from ina.p4.bfrt.device import following
                from ina.p4.bfrt.service import Server as BfrtServer

                current = following(lambda: device.switch if isinstance(device.switch, Switch) else None)
                other = stack.enter_context(BfrtServer(current, args.bfrt, access))
                print(f"BFRuntime: {other.address}, device 0; {access.described(args.bfrt)}", flush=True)
            print(f"P4Runtime: {server.address}, device {args.device_id}; ports: {', '.join(names) or 'none'}; "
                  f"{access.described(args.grpc)}", flush=True)
            signals.wait()
    return 0


def _listen(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Runs the switch of workers that reach an address of this machine, until a signal."""
    from ina.aggregation import port_kinds, protocols
    from ina.aggregation.control_socket.channel import TCP, elsewhere, own_path
    from ina.aggregation.controller import server
    from ina.base import tokens

    for option, value in vars(args).items():
        if option not in LISTEN_TAKES and value != parser.get_default(option):
            raise ValueError(f"--listen {args.listen} takes PROGRAM, -D and options of its own only, as its ports are those of "
                             f"the workers who come, and it has its own controller: leave --{option.replace('_', '-')} out")
    kind = re.split("[:@]", args.listen, maxsplit=1)[0]
    if kind in port_kinds.kinds():
        raise ValueError(f"--listen {args.listen}: {kind} is a kind of port; workers on other machines share one of the kernel's "
                         "network cards, by UDP, and no port of another kind: expected that card, such as eth0, or its address "
                         f"10.0.0.1:{PORT} (docs/guide/servers.md, Which ports are shared)")
    if args.job_slots and args.job_slots & (args.job_slots - 1):
        raise ValueError(f"--job-slots {args.job_slots}: expected a power of two")
    name = listen_name(args.listen)
    program = args.program or protocols.program(protocols.DEFAULT)

    def say(about: dict[str, Any]) -> None:
        print(f"{Path(about['program']).name} ({about['protocol']}, {about['values']} values a packet, {about['slots']} slots) "
              f"sums for workers with INA_SWITCH={name.removeprefix(TCP)}"
              f"{f' and the token in {tokens.where()}' if elsewhere(name) else ''}"
              f"{f', below {args.parent}' if args.parent else ''}", flush=True)
        if "metrics" in about:
            print(f"metrics for Prometheus: {about['metrics']}", flush=True)

    if args.parent_token_file is not None and args.parent is None:
        raise ValueError("--parent-token-file: it belongs to --parent HOST:PORT")
    if args.metrics_token_file is not None and args.metrics is None:
        raise ValueError("--metrics-token-file: it belongs to --metrics [HOST:]PORT")
    options = [f"-D{define}" for define in (f"SLOTS={protocols.POOL}", *args.define)]  # of two of a name the last one counts
    options += ["--log", args.log, f"--log-level={LEVELS[args.log_level]}"]
    options += [f"--{option.replace('_', '-')}={value}" for option in LISTEN_ONLY
                if (value := getattr(args, option)) not in (None, False, True)]
    options += ["--no-tags"] if args.no_tags else []
    with own_path(name):
        return server.main(["--program", str(program), "--name", name, *options], say=say)


def listen_name(where: str) -> str:
    """Returns the control socket's name for ``--listen``: a path, or of an IPv4 address or a network interface, perhaps with a
    port. Raises ValueError, OSError."""
    if "/" in where:
        return where
    place, colon, number = where.partition(":")
    if colon and not (number.isascii() and number.isdigit() and len(number) < 6 and 0 < int(number) < 65536):
        raise ValueError(f"--listen {where}: {number!r} is no TCP port; expected such as eth0, 10.0.0.1 or 10.0.0.1:{PORT}")
    try:
        ip = address_of(place)
    except ValueError as error:
        raise ValueError(f"--listen {where}: {error}") from None
    return f"tcp:{ip}:{number or PORT}"


def _with_pipes(program: Program, pipes: int) -> Program:
    """Returns the program. Raises ValueError: it has no pipes, and --pipes was given."""
    if pipes and program.architecture != "tna":
        raise ValueError(f"--pipes {pipes}: {program.name} is a program for {program.architecture}, which has no pipes")
    return program


def job_byte_of(program: Program, path: Path | None) -> int:
    """Returns the place of the job's number in the datagrams of a program, from ``path`` or sent by a controller; 0: it has no
    jobs, or none that we know."""
    from ina.aggregation.entries import recognise

    try:
        match = recognise(program.p4info, path)
    except ValueError:
        return 0
    return match[0].job_byte if match else 0


Udp = tuple[tuple[str, int], tuple[str, int]]


def parse_interface(text: str) -> tuple[int, str | Udp]:
    """Parses `PORT@WHERE` as the port's number and an interface's name, or UDP addresses to bind and of the peer."""
    number, at, where = text.partition("@")
    if not at or not number.isdigit() or not where or int(number) >= 511:
        raise ValueError(f"-i {text}: expected PORT@INTERFACE or PORT@udp:HOST:PORT,HOST:PORT, with a port of 0..510")
    if not where.startswith("udp:"):
        return int(number), where
    ends = []
    for end in where.removeprefix("udp:").split(","):
        host, _, udp_port = end.rpartition(":")
        if not host or not udp_port.isdigit():
            raise ValueError(f"-i {text}: {end!r} is no HOST:PORT")
        ends.append((host, int(udp_port)))
    if len(ends) != 2:
        raise ValueError(f"-i {text}: expected two addresses, the port's own and its peer's: udp:HOST:PORT,HOST:PORT")
    return int(number), (ends[0], ends[1])


def open_port(number: int, where: str | Udp) -> Any:
    """Opens a port. Datagrams of UDP get the headers of worker `number` (port_address). Raises ValueError, OSError."""
    from ina.aggregation.worker import SWITCH
    from ina.aggregation.worker.addresses import port_address
    from ina.net.ports import MAX_FRAME, longest_frame, open_packet, open_udp

    if isinstance(where, str):
        return open_packet(where, longest_frame(mtu_of(where)))
    bind, peer = where
    return open_udp(bind, peer, source=port_address(number), destination=SWITCH, max_frame=min(9216, MAX_FRAME))
