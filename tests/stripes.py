"""Several aggregation trees that share a tensor, and what their links carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ina.topology.topology import Topology
from ina.topology.tree import Tree, aggregation_tree


def striped_trees(topology: Topology, workers: Sequence[str], count: int, without: Collection[str] = ()) -> tuple[Tree, ...]:
    """Returns ``count`` trees of which each aggregates an equal part of the tensor; each avoids links loaded by those before it.
    Raises as aggregation_tree."""
    load: Counter[int] = Counter()
    trees = []
    for _ in range(count):
        trees.append(aggregation_tree(topology, workers, without, load))
        load.update(trees[-1].links)
    return tuple(trees)


def tensors_per_link(trees: Sequence[Tree]) -> dict[int, float]:
    """Returns the tensors that each link carries in each direction, when ``trees`` share one tensor evenly."""
    return {link: uses / len(trees) for link, uses in Counter(link for tree in trees for link in tree.links).items()}
