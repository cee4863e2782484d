"""Clients of the switch process: they start it, join a job, get a port, and learn why a job failed."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.aggregation import completion, port_kinds
from ina.aggregation.control_socket.channel import TCP, ChannelClosed, OutOfReach, connect, elsewhere, listen, shown
from ina.aggregation.control_socket.greeting import Refused, found
from ina.aggregation.control_socket.messages import REASON, Malformed, printable
from ina.aggregation.control_socket.peers import peer
from ina.base import paths
from ina.base.native import lib
from ina.base.once import Once
from ina.net.ports import Address

if TYPE_CHECKING:
    from ina.aggregation.worker.config import WorkerConfig


class ControlError(RuntimeError):
    """The switch process refused a request, or has ended. ``code``: the reply's, or ``gone``."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Attachment:
    """Answer of the controller to a worker: addresses as frames have them, its window, and its port's offer with descriptors."""

    job: str
    worker: int
    workers: int
    number: int
    incarnation: int
    life: int
    slots: int
    values: int
    protocol: str
    address: Address
    switch: Address
    outlives: bool  # the switches outlive the controller, and forward without it
    check: str  # how its check words are made: of protocols.CHECKS
    key: bytes = field(repr=False)  # with check "keyed"; else b""
    moves: bool  # the job is moved when a switch fails: then `Client.moved` has an entry, and the worker attaches again
    port: dict[str, Any]
    fds: list[int]
    rule: str = completion.DEFAULT  # the job's completion rule
    tags: port_kinds.Tags | None = field(default=None, repr=False)  # keys of the tags of frames; None: they have none
    _once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    def config(self, **own: Any) -> WorkerConfig:
        """Returns the worker's configuration; ``own``: the fields that each worker chooses (rto_min, timeout, ...)."""
        from ina.aggregation.worker.config import WorkerConfig  # NumPy, which a command's help does without

        return WorkerConfig(
            worker=self.worker, workers=self.workers, job=self.number, life=self.life, slots=self.slots, values=self.values,
            protocol=self.protocol, address=self.address, switch=self.switch,
            server=self.switch,  # it relays to the parameter server
            options=self.port.get("options", {}), check=self.check, rule=self.rule, key=self.key, **own)

    def lease(self) -> AbstractContextManager[None]:
        """Opens its port in the block, which raises if it cannot. Raises ValueError: it was opened before, or is being
        opened in another thread, so packets with the job's life may have been sent."""
        return self._once.use(f"worker {self.worker} of job {self.job!r}: this attachment's port was opened before: another "
                              "worker there would get the first one's sums; join a job anew for it")


class Client:
    """One connection to the switch process at ``name`` (abstract, or a path with a "/"): at most one worker of one job.

    ``token``: the job's; all its workers send the same. A job whose first worker sent none is its user's. ``host``: the network's
    host that this process is in, for a controller that cannot see it; default: INA_HOST. ``access``: the socket's token,
    or a pass, where that is TCP; default: ina/base/tokens.py finds it. Not thread-safe. ``timeout`` of each call in seconds; a
    dead switch process is a ControlError at once, and so is one of a user who is neither this one nor root (INA_SWITCH_USER names
    another).
    """

    def __init__(self, name: str, timeout: float = 60.0, token: str = "", host: str | None = None, access: str = ""):
        self.name = name
        self.token = token
        self.access = access
        self.host = os.environ.get("INA_HOST", "") if host is None else host
        self.timeout = timeout
        self.failure = ""  # why the job is over, once the switch process has sent that
        self.gone = False  # the connection ended without a reason of the switch process's
        self.cause = ""  # how it ended, then
        self.out_of_reach = ""  # why its machine is thought to be off or cut off
        self.moved: list[tuple[int, str]] = []  # moves to other switches: the job's incarnation there, and the reason
        self.notices: list[str] = []  # why the job stands still, and when it goes on
        self.left: dict[int, float] = {}  # workers that left without failure: when we heard of it, monotonic seconds
        self.lost: dict[int, float] = {}  # workers that ended without leaving: when we heard of it; the job is over
        self._ended = False  # no more events will come
        self._unanswered = 0  # number of replies to come that no caller waits for
        self._refused: ControlError | None = None  # refusal of this connection, or of a request without a waiting caller
        try:
            self._channel = connect(name, timeout, access)
        except Refused as error:
            raise ControlError(error.code, str(error)) from error
        except PermissionError as error:
            raise ControlError("denied", str(error)) from error
        except TimeoutError as error:
            raise ControlError("timeout", error.strerror or f"{shown(name)}: {error}") from error
        except OSError as error:
            raise ControlError("gone", f"{error.strerror}; it ended, or runs on another machine or in another network name "
                                       "space") from error
        except ValueError as error:
            raise ControlError("invalid", str(error)) from error

    def fileno(self) -> int:
        """Returns the connection's descriptor; its hang-up means that the switch process, or the job, has ended."""
        return self._channel.fileno()

    def ping(self, child: str = "") -> dict[str, Any]:
        """Returns what runs there. ``child``: the id of this process, if it is a switch process below that goes on asking."""
        return self._call("ping", **({"child": child} if child else {}))[0]

    def join(self, job: str, worker: int, paths: Sequence[str] = (), child: str = "", above: str = "") -> None:
        """Joins ``job`` as worker ``worker``, without waiting for the reply (attach raises a refusal).

        ``paths``: of all its workers in a tree of switch processes (tree_paths.py); none: there is one switch process. ``child``:
        the id of this process, a switch process that joins for the workers below it. ``above``: a pass for the job at the tree's
        other switch processes.
        """
        in_tree = {"paths": [*paths], "child": child, "above": above} if paths else {}
        self._send({"op": "join", "job": job, "worker": worker, "token": self.token, "host": self.host,
                    "wire": lib.INA_WIRE_VERSION, **{key: value for key, value in in_tree.items() if value}})
        self._unanswered += 1

    def admit(self, job: str, workers: int, slots: int | None = None, strict: bool = True, check: str = "") -> dict[str, Any]:
        """Admits ``job``, or returns its admission: all its workers ask and get the same answer.

        ``slots``: its window, a power of two (default: that of the switch process). ``check``: how its check words are made
        (protocols.CHECKS; default: as the job's other workers ask for, or the protocol's). Raises ControlError.
        """
        return self._call("admit", job=job, workers=workers, slots=slots, strict=strict, token=self.token, check=check)[0]

    def attach(self, job: str, worker: int, port: str = "", protocol: str = "", values: int = 0,
               moves: bool = False, held: int = 0, runs: bool = False, tags: str = "") -> Attachment:
        """Attaches worker ``worker`` with a port of a kind (ina/aggregation/port_kinds; default: that which reaches the switch
        process); the caller owns the descriptors.

        ``protocol`` and ``values`` per packet: refused if the switch's program has others; default: the program's. ``moves``:
        this worker goes on when its job is moved (ina/aggregation/worker/failover.py). ``held``: the incarnation of its previous
        attachment, where it comes back to a restarted controller. ``runs``: this worker runs the job's switch when it waits, if
        the switch process lets it (shared_switches.py); ignored unless that is a process of this one's user, whose code it then
        runs. ``tags``: whether frames have tags (on, off; default: as the switch process says).
        """
        runs = runs and self._is_own_users()
        request, own = self._bring(port or port_kinds.default(elsewhere(self.name)))
        try:
            reply, fds = self._call("attach", job=job, worker=worker, port=request, token=self.token, protocol=protocol,
                                    values=values, moves=moves, held=held, runs=runs, **({"tags": tags} if tags else {}))
        except BaseException:
            for fd in own:
                os.close(fd)
            raise
        fds += own
        try:
            reply["address"], reply["switch"] = Address(*reply["address"]), Address(*reply["switch"])
            port_kinds.offered_kind(reply["port"])
            if reply["port"].get("program") and not runs:
                raise ValueError("a switch to run that was not asked for")
            reply["tags"] = self._tags(reply["port"].pop("tags", ""))
            if tags == "on" and reply["tags"] is None:
                raise ValueError("frames without tags, which were asked for")
            reply["key"] = found(self._channel.seal, reply["key"])
            return Attachment(job=job, fds=fds, **reply)
        except (KeyError, TypeError, ValueError) as error:  # another version, perhaps
            for fd in fds:
                os.close(fd)
            raise ControlError("invalid", f"{shown(self.name)} answers 'attach' with what is no attachment: {error}") from None

    def _tags(self, salt: str) -> port_kinds.Tags | None:
        """Returns the keys of the tags of a port that was offered; None: its frames have none. Raises ValueError."""
        if not salt:
            return None
        if self._channel.seal is None:
            raise ValueError("tags, whose keys could only come by a greeting over TCP")
        return port_kinds.Tags.of(self._channel.seal.derive, salt)

    def ask(self, operation: str) -> dict[str, Any]:
        """Returns the reply to ``jobs``, ``switches`` or ``counters`` (api.py)."""
        return self._call(operation)[0]

    def counters(self) -> dict[str, Any]:
        return self.ask("counters")

    def change_links(self, events: Sequence[str]) -> None:
        """Changes links of a testbed at times from now on, as lines of ina/topology/link_events.py say. Raises ControlError."""
        self._call("links", events=list(events))

    def report(self, left: int | None = None, failed: str = "", lost: int | None = None) -> None:
        """Tells the switch process above of workers below this one: one has ``left``, or the job has ``failed``, as one was
        ``lost``. Does not wait for an answer."""
        self._send({"op": "report", "left": left, "failed": printable(failed)[: REASON.most], "lost": lost})
        self._unanswered += 1

    def release(self) -> None:
        """Leaves the job without failing it."""
        self._call("release")

    def stop(self) -> None:
        """Asks the switch process to end once its clients are gone. Does not wait for an answer."""
        self._send({"op": "stop"})
        self._unanswered += 1

    def poll(self) -> str:
        """Reads events that have arrived. Returns why the job is over, or ""."""
        while not self._ended:  # also when the job is over: other workers may be lost, too
            try:
                self._event(*self._channel.receive(None, "events"))
            except TimeoutError:
                break
            except (ChannelClosed, ValueError) as error:
                self._ended = True
                self.gone, self.cause = not self.failure, str(error)
                self._note(error)
                self.failure = self.failure or self._end_text(self.cause)
        return self.failure

    def close(self) -> None:
        """Hangs up: a worker that has not released is then lost to its job."""
        self._ended = True
        self._channel.hang_up()
        self._channel.close()

    def _bring(self, port: str) -> tuple[str, list[int]]:
        """Returns the request for a port, and descriptors of this worker's own end. Raises ControlError."""
        kind = port_kinds.kinds().get(port)
        if kind is None:  # it names a place already, or the switch process is to refuse it
            return port, []
        try:
            return kind.bring(self._channel.sock)
        except (OSError, ValueError) as error:
            raise ControlError("invalid", f"{shown(self.name)}: {error}") from None

    def _is_own_users(self) -> bool:
        """Tells whether the switch process is this one's user's."""
        sock = self._channel.sock
        return sock.family == socket.AF_UNIX and peer(sock)[1] == os.geteuid()

    def _call(self, op: str, **arguments: object) -> tuple[dict[str, Any], list[int]]:
        self._send({"op": op, **arguments})
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                message, fds = self._channel.receive(deadline, f"the switch process {shown(self.name)} to answer {op!r}")
            except TimeoutError as error:
                raise ControlError("timeout", f"{error} for {self.timeout:g} s") from error
            except (ChannelClosed, ValueError) as error:
                self._note(error)
                raise self._refused or ControlError("gone", self.failure or self._end_text(str(error), op)) from error
            try:
                if self._event(message, fds):
                    continue
            except Malformed as error:
                raise ControlError("invalid", f"{shown(self.name)} tells what is no event: {error}") from None
            if self._refused:  # an earlier request of this connection was refused
                raise self._refused
            if not message.pop("ok", False):
                raise _refusal(message)
            return message, fds

    def _event(self, message: dict[str, Any], fds: list[int]) -> bool:
        """Handles an event, or a reply without a waiting caller; False: the message is the reply that the caller waits for."""
        kind = message.get("event")
        if kind is None and not self._unanswered:
            return False
        for fd in fds:
            os.close(fd)
        if kind == "failed":
            self.failure = self.failure or _reason(message)
            if "lost" in message:
                self.lost.setdefault(_number(message, "lost"), time.monotonic())
        elif kind == "refused":
            self.failure = _reason(message)
            self._refused = ControlError(str(message.get("code")), self.failure)
        elif kind == "moved":
            self.moved.append((_number(message, "incarnation"), _reason(message)))
        elif kind == "notice":
            self.notices.append(_reason(message))
        elif kind == "left":
            self.left.setdefault(_number(message, "worker"), time.monotonic())
        elif kind is None:
            self._unanswered -= 1
            if not message.get("ok"):
                self._refused = _refusal(message)
                if self._refused.code == "invalid" and "'wire'" in str(self._refused):  # it does not know wire versions
                    self._refused = ControlError("version", f"the switch process {shown(self.name)} speaks wire version 1, this "
                                                 f"worker {lib.INA_WIRE_VERSION}: upgrade ina on the switch's machine, and load "
                                                 "its program anew")
                if self._refused.code in ("failed", "duplicate", "version"):
                    self.failure = str(self._refused)
        return True

    def _note(self, error: Exception) -> None:
        self.out_of_reach = self.out_of_reach or (str(error) if isinstance(error, OutOfReach) else "")

    def _end_text(self, cause: str, op: str = "") -> str:
        """Returns what a hang-up means; over TCP, ``cause`` may be the network's as well as the process's."""
        before = f" before it answered {op!r}" if op else ""
        if self.out_of_reach:
            return f"the switch process (socket {shown(self.name)}) is lost ({self.out_of_reach}){before}"
        if elsewhere(self.name):
            return f"the connection to the switch process (socket {shown(self.name)}) ended{before}: {cause}"
        return f"the switch process (socket {shown(self.name)}) ended{before}"

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            self._note(error)
            self.poll()
            raise self._refused or ControlError("gone", self.failure or self._end_text(str(error), message["op"])) from error


def _refusal(message: dict[str, Any]) -> ControlError:
    return ControlError(str(message.get("code", "invalid")), printable(message.get("error", "no reason given"), "\n"))


def _number(message: dict[str, Any], key: str) -> int:
    number = message.get(key)
    if type(number) is not int:
        raise Malformed(f"{key}: expected an integer")
    return number


def _reason(message: dict[str, Any]) -> str:
    return printable(message.get("reason", "no reason given"), "\n")


class SwitchProcess:
    """A switch process that this process started and keeps alive.

    It ends when its last client is gone after ``close`` was called, or after this process has ended in any way. The socket
    listens before the process runs: clients may connect at once and wait for their first answer.
    """

    def __init__(self, program: Path | str, defines: dict[str, str] | None = None, name: str | None = None,
                 job_slots: int | None = None, verbose: bool = False, module: str = "ina.aggregation.controller.server",
                 arguments: Sequence[str] = (), notices: bool = False, parent: str = "", parent_access: str = ""):
        """``name``: of its socket; over TCP, where its port may be 0, it has a token of its own, ``access``; default: an abstract
        name of its own. ``module``: the process's main module, with ``arguments`` of its own; default: one embedded switch, which
        makes ports for workers. ``notices``: while it makes its switch, notices of what takes long go to this process's standard
        error. ``parent``: the socket of the switch process above it, where this is one of this machine; ``parent_access``: that
        socket's token, or a pass. Raises OSError, ValueError: other machines are to reach both."""
        if parent and name and elsewhere(name):
            raise ValueError(f"a switch process at {name} below {parent}: one that is started for a parent listens at a path or "
                             "an abstract socket")
        self.name, self.access = name or f"ina-{os.getpid()}-{uuid.uuid4().hex[:12]}", ""
        listener = listen(self.name)
        starter_end, self._alive = os.pipe()
        self._log = os.memfd_create("ina-switch-log")
        command = [sys.executable, "-m", module, "--program", str(program),
                   "--listen-fd", str(listener.fileno()), "--starter-fd", str(starter_end),
                   "--starter-pid", str(os.getpid()),
                   *(f"-D{key}={value}" if value else f"-D{key}" for key, value in (defines or {}).items())]
        if job_slots:
            command += ["--job-slots", str(job_slots)]
        if verbose:
            command.append("--verbose")
        command += [*arguments, *(("--parent", parent) if parent else ())]
        descriptors = _own_stderr() if notices else []
        command += [word for descriptor in descriptors for word in ("--notices-fd", str(descriptor))]
        environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        package_root = str(paths.PACKAGE.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
        if parent_access:
            environment["INA_TOKEN"] = parent_access  # not on the command line, which others can read
        if elsewhere(self.name):
            host, port = listener.getsockname()[:2]
            self.name, self.access = f"{TCP}{host}:{port}", secrets.token_hex(32)
            environment["INA_TOKEN"] = self.access  # which only this user can read there
        try:
            # Its own session: a Ctrl-C or a kill of the job's process group must not take it down before the workers.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                                            pass_fds=[listener.fileno(), starter_end, *descriptors], env=environment,
                                            start_new_session=True)
        except OSError:
            os.close(self._alive)
            os.close(self._log)
            raise
        finally:
            for descriptor in (starter_end, *descriptors):
                os.close(descriptor)
            listener.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, timeout: float = 120.0) -> dict[str, Any]:
        """Waits until it serves (the first start of a program compiles it). Returns its reply to ``ping``."""
        client = Client(self.name, timeout, access=self.access)
        try:
            return client.ping()
        except ControlError as error:
            raise ControlError(error.code, f"{error}{self.log_tail(reported=str(error))}") from error
        finally:
            client.close()

    def log_tail(self, lines: int = 15, reported: str = "") -> str:
        """Returns the last lines of its standard error, ready to be appended to an error message; "" if none. Lines of
        ``reported``, a message that says the same, are left out."""
        data = os.pread(self._log, 1 << 16, max(0, os.fstat(self._log).st_size - (1 << 16)))
        text = data.decode(errors="replace").strip().splitlines()
        heard = tuple(line for line in reported.splitlines() if line.strip())
        fresh = [line for line in text if not (heard and line.endswith(heard))]
        return "".join(f"\n  switch| {line}" for line in fresh[-lines:])

    def close(self, timeout: float = 5.0) -> None:
        """Stops keeping it alive, and waits up to ``timeout`` seconds for its end (it goes on while it has clients)."""
        if self._alive < 0:
            return
        os.close(self._alive)
        self._alive = -1
        os.close(self._log)
        with suppress(ControlError):  # gone already
            client = Client(self.name, access=self.access)  # forked children may hold copies of the pipe: ask, too
            client.stop()
            client.close()
        with suppress(subprocess.TimeoutExpired):  # it has clients, and goes on with them
            self.process.wait(timeout)


def _own_stderr() -> list[int]:
    """Returns a descriptor of this process's standard error; none where it is closed."""
    try:
        return [os.dup(2)]
    except OSError:
        return []


def start_server(program: Path | str, defines: dict[str, str] | None = None, name: str | None = None,
                 job_slots: int | None = None, timeout: float = 120.0, verbose: bool = False) -> SwitchProcess:
    """Starts a switch process and waits until it serves. ControlError with the end of its log when it does not."""
    process = SwitchProcess(program, defines, name, job_slots, verbose)
    try:
        process.wait_ready(timeout)
    except BaseException:
        process.close()
        raise
    return process
