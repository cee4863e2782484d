"""Runs a codec over NumPy arrays, one for each worker: the reference beside every faster way, and for a codec's own tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.aggregation.lane import INT32
from ina.codecs.codec import MAXIMUM, OWN, Call, Codec, Round
from ina.codecs.halves import BFLOAT16


def reduced(
    codecs: Codec | Sequence[Codec], tensors: Sequence[np.ndarray], *, average: bool = False, step: int = 0
) -> list[np.ndarray]:
    """Returns every worker's result. ``codecs``: one for each worker, or one for all if it remembers nothing.

    int32 words are added modulo 2^32, float32 words are exact sums or averages, rounded once, as in the protocol's exact code; a
    packet's code, in which a value may become zero beside one that is 2^27 times as large, is not made again here.
    TypeError: not arrays of NumPy. ValueError: a tensor is not flat and contiguous, or not of one of the codec's dtypes; one
    codec that remembers for several workers; workers differ in a round; or the codec does not say what its program's own
    operation gives.
    """
    if isinstance(codecs, Codec) and codecs.remembers and len(tensors) > 1:
        raise ValueError(f"codec {codecs.name} remembers: expected one for each of {len(tensors)} workers")
    each = [codecs] * len(tensors) if isinstance(codecs, Codec) else list(codecs)
    for codec, tensor in zip(each, tensors, strict=True):
        _check(codec, tensor)
    calls = [Call(len(tensors), rank, average, step) for rank in range(len(tensors))]
    running = [codec.reduce(tensor, call) for codec, tensor, call in zip(each, tensors, calls, strict=True)]
    results: list[np.ndarray] = []
    sent: list[np.ndarray | None] = [None] * len(tensors)
    while True:
        rounds: list[Round] = []
        for generator, words in zip(running, sent, strict=True):
            try:
                rounds.append(generator.send(words))  # type: ignore[arg-type]  # the first is None
            except StopIteration as end:
                results.append(end.value)
        if not rounds:
            return results
        if len(rounds) < len(running) or len({(r.words.size, r.words.dtype, r.operation, r.average) for r in rounds}) > 1:
            raise ValueError(f"codec {each[0].name}: the workers differ in a round: expected as many words on all of them")
        inputs, operation = [r.words for r in rounds], rounds[0].operation
        total = each[0].own(inputs) if operation == OWN else _switch(inputs, operation, rounds[0].average)
        sent = [total.copy() for _ in running]


def _check(codec: Codec, tensor: np.ndarray) -> None:
    if not isinstance(tensor, np.ndarray):
        raise TypeError(f"codec {codec.name}: a tensor is {type(tensor).__name__}, expected an array of NumPy")
    dtype = "bfloat16" if tensor.dtype == BFLOAT16 else tensor.dtype.name
    if dtype not in codec.dtypes or tensor.ndim != 1 or not tensor.flags.c_contiguous:
        known = ", ".join(each + " (its bits, as uint16)" * (each == "bfloat16") for each in codec.dtypes)
        raise ValueError(f"codec {codec.name}: a tensor of {tensor.dtype}, shape {tensor.shape}, strides {tensor.strides}: "
                         f"expected a flat and contiguous one of {known}")


def _switch(words: list[np.ndarray], operation: int, average: bool) -> np.ndarray:
    if operation == MAXIMUM:
        return np.max(words, axis=0)
    if words[0].dtype == np.int32:
        return INT32.sums(words)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs, and NaN, are right as they are
        total = np.add.reduce(np.asarray(words, np.longdouble), axis=0, initial=-0.0)
        return np.asarray(total / len(words) if average else total, np.float32)
