"""Defects that fuzzing must find: each changes one line of a copy of the repository.

`python -m tests.fuzz.plants [TARGET ...]` plants them all, one after the other, and prints the time until each was found.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from random_programs.plants import Plant, copy_with

from . import engine
from .registry import CORPUS, TARGETS

PATIENCE = 60  # seconds


@dataclass(frozen=True)
class Planted:
    """A defect that `target` must find. `plant.finds`: part of the finding's text."""

    plant: Plant
    target: str


PLANTS = (
    Planted(
        Plant(
            "a datagram's length is believed",
            "host/net/internet.c",
            " || INA_INTERNET_IP + total > len)",
            ")",
            "heap-buffer-overflow",
        ),
        "frames",
    ),
    *(
        Planted(
            Plant(
                "a piece's last block is as long as any",
                "host/protocol/route.c",
                "left < values ? left : values}",
                "left ? values : values}",
                "heap-buffer-overflow",
            ),
            f"worker-{name}",
        )
        for name in ("receivers", "atp_routes")
    ),
    Planted(
        Plant(
            "a peer says where in the ring a frame lies",
            "host/net/segment.c",
            "!len || len > max_frame || offset > area - len ||",
            "!len || len > max_frame ||",
            "ERROR: AddressSanitizer",
        ),
        "segment",
    ),
    Planted(
        Plant(
            "the parameter server answers into frames that are too short",
            "host/protocol/ps.c",
            "    if (pkt->len + pkt->tailroom < INA_ATP_PAYLOAD + payload)\n        return -1;\n",
            "",
            "heap-buffer-overflow",
        ),
        "server",
    ),
    Planted(
        Plant(
            "generated code takes a varbit from beyond the frame",
            "ina/p4/compiler/lower/parser.py",
            'self.context.check_parser(ir.Op("le", (length, left), 1), "PacketTooShort", e)',
            "assert left",
            "ERROR: AddressSanitizer",
        ),
        "switch-everything",
    ),
    Planted(
        Plant(
            "fractions have no name in a refusal",
            "ina/aggregation/control_socket/messages.py",
            ' float: "a fraction",',
            "",
            "KeyError",
        ),
        "control-messages",
    ),
    Planted(
        Plant(
            "a request line of HTTP may have any number of words",
            "ina/aggregation/controller/http.py",
            'if len(parts) != 3 or not parts[2].startswith("HTTP/1."):',
            'if not parts[-1].startswith("HTTP/1."):',
            "IndexError",
        ),
        "control-http",
    ),
    Planted(
        Plant(
            "lengths of a trace's messages are believed",
            "ina/p4/tools/trace.py",
            "if at + 16 > len(data):",
            "if False:",
            "unpack_from requires",
        ),
        "capture",
    ),
)


def search(planted: Planted, build: Path, seconds: float = PATIENCE) -> engine.Run:
    """Fuzzes the target in a copy with the defect, from the corpus of the repository. `build`: folder for cached objects."""
    with tempfile.TemporaryDirectory() as scratch:
        root = copy_with(planted.plant, Path(scratch) / "copy")
        target = TARGETS[planted.target]
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        return engine.fuzz(target, seconds, build, [corpus, CORPUS / target.name], root=root, seed=1)


def main() -> int:
    misses, plants = 0, [planted for planted in PLANTS if not sys.argv[1:] or planted.target in sys.argv[1:]]
    for planted in plants:
        run = search(planted, Path("results/fuzz/build"))
        hit = run.artifact is not None and planted.plant.finds in run.text
        misses += not hit
        print(f"{'found' if hit else 'MISSED':<7} {planted.plant.name}: {planted.target}, {run.seconds:.1f} s", flush=True)
        if not hit:
            print(run.text)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
