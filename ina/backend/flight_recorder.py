"""Flight recorder: the last collectives of every rank, written when one of them fails, in the format of torch's own recorder.

INA_FLIGHT=/tmp/flight/rank makes each rank keep its last ``LAST`` collectives, and write them to /tmp/flight/rank0, ... when a
collective of any rank fails or times out: the first to fail says so in the group's store, where all others look every ``LOOK``
seconds. So a rank that is not in a collective, for which the others wait, writes its file, too. ``torchfrtrace /tmp/flight``
compares the files: which rank did not come to which collective, or came with another shape or type. Where the default group has
ended and another one is made (shrink.py, grow.py), all this begins anew: its ranks may be others, and have other numbers.

Rounds of a Quorum (ready.py) are all-reduces of the quorum's own group, whose description is "ready": a rank has those that it
has come to, not those that it has only announced.

The names of collectives begin with "gloo:", whichever way they went: torch's analyser knows a list of back ends by heart. A
receive from any rank is not recorded, since the format has no place for an unknown sender.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ina.backend.arguments import inputs_and_outputs, tensors_in
from ina.backend.locks import Lock
from ina.backend.names import torch_name
from ina.backend.questions import Questions, connection

LAST = 2000  # collectives
LOOK = 0.5  # seconds between looks at the store
TELLING = 2.0  # seconds for the others' files, before the first failure is raised: they may be ended then
PATIENCE = 60.0  # seconds for another thread of this process
VERSION = "2.10"  # of torch's format: torch/csrc/distributed/c10d/FlightRecorder.hpp


# Types as torch's recorder names them.
SCALARS = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.int32: "Int", torch.int64: "Long",
    torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte", torch.bfloat16: "BFloat16", torch.bool: "Bool",
    torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}


class Group(Protocol):
    """A process group (membership.py)."""

    _timeout: timedelta

    @property
    def group_name(self) -> str: ...

    @property
    def group_desc(self) -> str: ...

    def rank(self) -> int: ...

    def size(self) -> int: ...


class Entry:
    """A collective of this rank, from its call to its end."""

    def __init__(self, recorder: Recorder, fields: dict[str, Any]):
        self.fields = fields
        self._recorder = recorder

    def ended(self, error: Exception | None) -> None:
        """Notes the end of the collective; its failure makes all ranks write their files."""
        if error is None:
            self.fields |= {"state": "completed", "time_discovered_completed_ns": time.time_ns(), "retired": True}
        else:
            self._recorder.failed()


class Recorder:
    """The collectives of this process. Methods may be called from any thread."""

    def __init__(self, prefix: str, rank: int):
        """``prefix``: of the file's path; ``rank``: in the launcher's job. Makes the folder. Raises ValueError: no file can be
        written there."""
        self._path = Path(f"{prefix}{rank}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"INA_FLIGHT={prefix}: {error.filename}: {error.strerror}; expected FOLDER/NAME") from None
        if not os.access(self._path.parent, os.W_OK):
            raise ValueError(f"INA_FLIGHT={prefix}: {self._path.parent} cannot be written to")
        self._entries: deque[Entry] = deque(maxlen=LAST)
        self._groups: dict[str, dict[str, str]] = {}  # by name: as torch's pg_config
        self._counts: Counter[tuple[str, str]] = Counter()  # by group, of collectives, messages and both
        self._number = 0
        self._lock = Lock("the flight recorder", lambda: PATIENCE)
        self._questions: Questions | None = None
        self._rank = self._size = 0
        self._told = False
        self._pid = os.getpid()

    def watch(self, store: dist.Store, rank: int, size: int) -> bool:
        """Writes the file when another rank of this group, whose ``store`` this is, has failed. Returns False: it watches another
        one, the first, until that has ended (``leave``)."""
        if self._questions is not None:
            return False
        with self._lock:  # ranks of the groups before may be others, with other numbers of collectives
            self._entries.clear()
            self._groups.clear()
            self._counts.clear()
        questions = self._questions = Questions(store)
        self._rank, self._size, self._told = rank, size, False
        threading.Thread(target=self._watch, args=(connection(store), questions, rank), name="ina-flight", daemon=True).start()
        return True

    def leave(self) -> None:
        """Notes that the group that it watches has ended: the next one is watched. Writes the file if another rank has failed
        just now."""
        questions, self._questions = self._questions, None
        if questions is not None and not self._told:
            with suppress(RuntimeError):  # the store's rank has ended, or stands still
                if questions.ask(lambda store: store.check(["failed"]), TELLING):
                    self.write()

    def _watch(self, store: dist.Store, questions: Questions, rank: int) -> None:
        try:
            while not store.check(["failed"]):
                time.sleep(LOOK)
                if self._questions is not questions:
                    return
            self.write()
            store.set(f"written/{rank}", "")
        except RuntimeError:  # the store's rank has ended: nobody is left who could ask
            pass

    def begin(self, group: Group, method: str, args: Sequence[object], writes: bool, by_all: bool) -> Entry | None:
        """Records the call of a collective. ``args``: the method's; ``writes``: its first argument is an output; ``by_all``: it
        is no message. None: it cannot be recorded."""
        if method == "recv_anysource":
            return None
        inputs, outputs = (_tensors(each) for each in inputs_and_outputs(args, writes, by_all))
        name = torch_name(method)
        if not by_all:
            peer = args[1] if len(args) > 1 else -1
            name = f"{name} {group.rank()}{'<-' if writes else '->'}{peer}"
        with self._lock:
            key = group.group_name
            if key not in self._groups:
                self._groups[key] = {"name": key, "desc": group.group_desc, "ranks": str(members(group))}
            self._counts[key, "all" if by_all else "message"] += 1
            self._counts[key, "any"] += 1
            entry = Entry(self, {
                "record_id": self._number, "pg_id": list(self._groups).index(key), "process_group": (key, group.group_desc),
                "thread_name": threading.current_thread().name, "thread_id": str(threading.get_native_id()),
                "collective_seq_id": self._counts[key, "all"], "p2p_seq_id": self._counts[key, "message"],
                "op_id": self._counts[key, "any"], "profiling_name": f"gloo:{name}", "time_created_ns": time.time_ns(),
                "input_sizes": [size for size, _ in inputs], "input_dtypes": [dtype for _, dtype in inputs],
                "output_sizes": [size for size, _ in outputs], "output_dtypes": [dtype for _, dtype in outputs],
                "state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
                "retired": False, "is_p2p": not by_all, "timeout_ms": int(1000 * group._timeout.total_seconds()),
            })
            self._number += 1
            self._entries.append(entry)
        return entry

    def failed(self) -> None:
        """Writes the file and tells the other ranks; waits up to ``TELLING`` for theirs."""
        if self._told:
            return
        self._told = True
        self.write()
        questions = self._questions  # another thread may end the group
        if questions is None:
            return
        deadline = time.monotonic() + TELLING

        def tell(store: dist.Store) -> None:
            store.set("failed", "")
            store.set(f"written/{self._rank}", "")

        with suppress(RuntimeError):  # the store's rank has ended, or stands still
            questions.ask(tell, TELLING)
            questions.missing([f"written/{r}" for r in range(self._size)], deadline, TELLING)

    def write(self) -> None:
        """Writes the file, all of it or nothing. A file that cannot be written is a message on standard error."""
        if os.getpid() != self._pid:  # a forked child has its parent's entries
            return
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            new.write_bytes(pickle.dumps(self.dump()))
            new.replace(self._path)
        except OSError as error:
            print(f"ina: INA_FLIGHT: {self._path} cannot be written: {error}", file=sys.stderr)

    def dump(self) -> dict[str, Any]:
        """Returns the collectives, oldest first, with their groups, as torch's recorder does."""
        with self._lock:
            entries = [dict(entry.fields) for entry in self._entries]
            config = dict(self._groups)
        status = {}
        for number, name in enumerate(config):
            own = [entry for entry in entries if entry["process_group"][0] == name and not entry["is_p2p"]]
            ended = [entry["collective_seq_id"] for entry in own if entry["state"] == "completed"]
            status[str(number)] = {"last_enqueued_collective": max((e["collective_seq_id"] for e in own), default=-1),
                                   "last_started_collective": -1, "last_completed_collective": max(ended, default=-1)}
        return {"version": VERSION, "pg_config": config, "pg_status": status, "comm_lib_version": "", "entries": entries}


def members(group: Group) -> list[int]:
    """Returns the global ranks of a group; its own numbers, if torch does not know it."""
    members = c10d._world.pg_group_ranks.get(group, {})  # type: ignore[call-overload]
    return sorted(members) or list(range(group.size()))


def _tensors(argument: object) -> list[tuple[list[int], str]]:
    """Returns sizes and types of an argument's tensors. A list of lists, one of each rank, counts as one tensor."""
    if isinstance(argument, (list, tuple)) and argument and all(isinstance(each, (list, tuple)) for each in argument):
        return [_joined(tensors_in(each)) for each in argument if each]
    return [_joined([tensor]) for tensor in tensors_in(argument)]


def _joined(tensors: list[torch.Tensor]) -> tuple[list[int], str]:
    sizes, dtype = {tuple(tensor.shape) for tensor in tensors}, SCALARS.get(tensors[0].dtype, str(tensors[0].dtype))
    if len(tensors) == 1:
        return list(tensors[0].shape), dtype
    if len(sizes) == 1:
        return [len(tensors), *tensors[0].shape], dtype
    return [sum(tensor.numel() for tensor in tensors)], dtype


recorder: Recorder | None = None  # of this process


def open_recorder(prefix: str, rank: int, store: dist.Store, group_rank: int, size: int) -> bool:
    """Opens the recorder with the first group that asks for one. ``rank``: of this process in the launcher's job. Returns True if
    it watches this group."""
    global recorder
    if prefix and (recorder is None or recorder._pid != os.getpid()):
        recorder = Recorder(prefix, rank)
    return recorder is not None and recorder.watch(store, group_rank, size)
