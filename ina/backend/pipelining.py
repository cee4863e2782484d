"""Pipeline stages whose gradients go to the stage before in a codec (Optimus-CC, Song et al., ASPLOS'23: compressed
backpropagation with lazy error propagation).

    from ina.backend.pipelining import Stage

    stage = Stage(module, rank, ranks, device)            # was: torch.distributed.pipelining.PipelineStage
    Schedule1F1B(stage, n_microbatches=8, loss_fn=loss).step(inputs)

The gradient of a stage's input goes to the stage before as a matrix of low rank, or in another codec. What that misses is added
to the gradient of the next micro-batch, by a codec with feedback. Activations travel as they are, as in the paper.
The paper's other parts need no code: gradients of some stages' parameters in a codec are `ina.backend.hooks.Choice`, and tied
embeddings are summed at once in a group of the first and the last stages' ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from ina import codecs

__all__ = ["Stage", "low_rank"]

RANK = 16  # of the paper's GPT with 2.5 billion parameters (AIS-SNU/Optimus-CC, ASPLOS23/tbl2_fig9_tbl4/GPT2-2.5B-CB.sh)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TITLE, TAG = 256, 0x1a  # bytes of what a stage says of its codec to the next one, and the tag of that message


def low_rank(shape: torch.Size) -> codecs.Codec:
    """Returns a codec for a gradient of this shape: PowerSGD of rank 16, the matrix's columns those of the last dimension."""
    return codecs.PowerSgd(RANK, shape[-1] if len(shape) > 1 else 0)


class _Lane:
    """One of the stage's inputs or outputs: the codec of its gradients, and the number of its messages."""

    def __init__(self, codec: codecs.Codec, shape: torch.Size) -> None:
        self.codec, self.shape, self.step = codec, shape, 0
        self.bytes = codecs.message_bytes(codec, shape.numel())

    def message(self, gradient: torch.Tensor) -> torch.Tensor:
        values = gradient.detach().to("cpu", torch.float32).contiguous().numpy().ravel()
        message = codecs.write(self.codec, values, self.step)
        self.step += 1
        return torch.from_numpy(message.copy()).to(gradient.device)

    def read_into(self, message: torch.Tensor, gradient: torch.Tensor) -> None:
        values = codecs.read(self.codec, message.cpu().numpy(), self.shape.numel(), self.step)
        self.step += 1
        gradient.copy_(torch.from_numpy(values).view(self.shape))


def _padded(text: str, agreed: str) -> torch.Tensor:
    """Returns a stage's message to the next one: ``text``, for people, and the CRC-32 of it and ``agreed``."""
    whole = text.encode()[: TITLE - 4].ljust(TITLE - 4) + zlib.crc32((text + agreed).encode()).to_bytes(4, "little")
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8)


def _text(title: torch.Tensor) -> str:
    return bytes(title.tolist())[: TITLE - 4].decode(errors="replace").strip()


class Stage(PipelineStage):
    """PipelineStage of torch (2.13) for any of its schedules; the same arguments, and:

    ``codec``: a name of ina.codecs whose messages have one size ("powersgd", "thc", "lanes-16"), or a function that gives a new
    codec for a gradient's shape; the same on all stages. (Beside a stage of torch's own, both wait until the group's time-out.)
    ``epilogue_only``: only gradients that nothing hides in 1F1B, those of the last ``num_stages`` - ``stage_index`` micro-batches
    that a stage sends, are in the codec (the paper's epilogue-only compression). ``sent``: bytes of gradients that this stage has
    sent; ``dense``: without a codec they would be these.

    TypeError: ``codec`` gives no codec, or gradients are of another type than float32, bfloat16 or float16. ValueError: the codec
    has no such messages, or another stage has another codec.
    """

    def __init__(self, *args: Any, codec: str | Callable[[torch.Size], codecs.Codec] = low_rank, epilogue_only: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._make = (lambda _shape: codecs.named(codec)) if isinstance(codec, str) else codec
        self._epilogue_only = epilogue_only
        example = self._make(torch.Size([64, 64]))  # a wrong codec is told where it stands
        if not isinstance(example, codecs.Codec):
            raise TypeError(f"codec: the function gave {example!r}, expected an ina.codecs.Codec")
        codecs.write(example, np.zeros(64 * 64, np.float32), 0)
        self._text = f"codec {example.title}{', the epilogue only' * epilogue_only}"
        self._introduced = False
        self._heard: tuple[torch.Tensor, torch.Tensor] | None = None  # what the stage before has sent, and what it should have
        self._lanes: dict[tuple[bool, int], _Lane] = {}  # by direction and place among the inputs or outputs
        self._arriving: dict[int, list[tuple[_Lane, torch.Tensor, torch.Tensor]]] = {}  # by micro-batch
        self.sent = self.dense = 0

    # Gloo ends a process that gets a longer message than it expects: stages compare codecs before the first gradient.

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the sends of a micro-batch's activations to the next stage; with the first, which codec this stage has."""
        ops = super().get_fwd_send_ops(fwd_chunk_id)
        if ops and self.has_backward and not self._introduced:
            self._introduced = True
            ops.append(dist.P2POp(dist.isend, self._title(ops).to(ops[0].tensor.device), ops[0].peer, self.group, TAG))
        return ops

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the receives of a micro-batch's activations from the stage before, and of its codec's title."""
        ops = super().get_fwd_recv_ops(fwd_chunk_id)
        if ops and self.has_backward and self._heard is None:
            title = torch.empty(TITLE, dtype=torch.uint8, device=ops[0].tensor.device)
            self._heard = title, self._title(ops)
            ops.append(dist.P2POp(dist.irecv, title, ops[0].peer, self.group, TAG))
        return ops

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the sends of a micro-batch's gradients to the stage before, in the codec."""
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        if ops and self._heard is not None and not torch.equal(self._heard[0].cpu(), self._heard[1]):
            raise ValueError(f"stage {self.stage_index}: gradients in {self._text}, but stage {self.stage_index - 1} has "
                             f"{_text(self._heard[0])}: expected the same codec on all stages, for each shape")
        for place, op in enumerate(ops):
            size = op.tensor.nbytes
            self.dense += size
            if self._in_codec(bwd_chunk_id, self.stage_index):
                op.tensor = self._lane(True, place, op.tensor).message(op.tensor)
            self.sent += op.tensor.nbytes
        return ops

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the receives of a micro-batch's gradients from the stage behind, in the codec."""
        ops = super().get_bwd_recv_ops(bwd_chunk_id)
        if ops and self._in_codec(bwd_chunk_id, self.stage_index + 1):
            self._arriving[bwd_chunk_id] = []
            for place, op in enumerate(ops):
                lane, gradient = self._lane(False, place, op.tensor), op.tensor
                op.tensor = torch.empty(lane.bytes, dtype=torch.uint8, device=gradient.device)
                self._arriving[bwd_chunk_id].append((lane, op.tensor, gradient))
        return ops

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """Reads the gradients that have come, then computes this stage's."""
        for lane, message, gradient in self._arriving.pop(bwd_chunk_id, ()):
            try:
                lane.read_into(message, gradient)
            except ValueError as error:
                raise ValueError(f"stage {self.stage_index}, gradient of micro-batch {bwd_chunk_id}: {error}") from None
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _title(self, ops: list[dist.P2POp]) -> torch.Tensor:
        """Returns what a stage says of its codec beside these activations, whose gradients have their shapes."""
        return _padded(self._text, " ".join(f"{tuple(op.tensor.shape)} {self._make(op.tensor.shape).title}" for op in ops))

    def _in_codec(self, chunk: int, sender: int) -> bool:
        return not self._epilogue_only or chunk >= (self.chunks or 0) - (self.num_stages - sender)

    def _lane(self, sends: bool, place: int, gradient: torch.Tensor) -> _Lane:
        lane = self._lanes.get((sends, place))
        if lane is None or lane.shape != gradient.shape:
            if gradient.dtype not in DTYPES:
                raise TypeError(f"stage {self.stage_index}: gradients of {gradient.dtype}, expected one of "
                                f"{', '.join(map(str, DTYPES))}")
            lane = self._lanes[sends, place] = _Lane(self._make(gradient.shape), gradient.shape)
        return lane
