"""Page and plot of docs/results/codecs.md: trainings by each codec, and where compression pays.

    ina experiment run codecs
    python docs/site/codec_results.py results/codecs-...    keeps the figures in docs/results/codecs.json
    python docs/site/codec_results.py --add results/codecs-...    adds them to those that are kept
    python docs/site/codec_results.py --testbed results/codecs-testbed-...    keeps those of `ina experiment run codecs-testbed`
    make docs                                            writes the page and the plot of them
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ina.lab.kinds.compression import Compression

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "docs/results/codecs.json"
RATES = ("100 Mb/s", "10 Gb/s", "100 Gb/s")
PLANNED = (100e6, 1e9, 10e9, 25e9, 100e9)  # bit/s
TESTBED = ("accuracy", "loss", "steps", "up_kb", "down_kb", "target_steps", "target_s", "step_ms", "allreduce_ms", "link_use")
ENVIRONMENT = ("cpu", "cores", "kernel", "python", "torch", "commit", "time")
FIGURES = ("accuracy", "loss", "up_kb", "down_kb", "target_steps", "compute_ms", "codec_ms", "network_ms", "faster",
           "network_faster", "target_s")
SPARSE = (  # codecs, the protocols that they need, and shares of blocks that are zero
    ("omnireduce", "switchml", (0.0, 0.9, 0.99)),
    ("omnireduce-ahead", "omnireduce", (0.0, 0.9, 0.99)),
    ("sketch", "switchml", (0.9, 0.95, 0.99)),
)
ELEMENTS = 1 << 24  # of sparse tensors: at 64 MB, round trips are little of the time

# System, what was published, and what is not modelled here.
PUBLISHED = (
    ("THC ([Li et al., NSDI'24](https://www.usenix.org/conference/nsdi24/presentation/li-minghao), abstract)",
     "target accuracy 1.40 to 1.47 times as fast, with aggregation in the network",
     "its rotation and quantisation on GPUs, and trainings that are bound by the network: here codec and "
     "compute are those of one "
     "core; the maximum of the norms overlaps with the rotation there, as in ranks here, and is a round of its own in "
     "virtual time"),
    ("OmniReduce ([Fei et al., SIGCOMM'21](https://doi.org/10.1145/3452296.3472904), abstract)",
     "up to 8.2 times; 1.4 to 2.9 times at 100 Gb/s, for models bound by the network",
     "its models, whose embeddings have sparse gradients: ours are dense, so it gains nothing in the "
     "trainings; hosts' packet rates"),
    ("Lossless homomorphic compression ([Li et al., arXiv 2402.07529](https://arxiv.org/abs/2402.07529))",
     "up to 6.33 times the aggregation throughput, 3.74 times as fast an iteration",
     "its GPUs, which hash and peel; its baselines, which are all-reduces between hosts"),
)


# ---- keeping


def keep(folders: Sequence[Path], earlier: dict | None = None) -> dict:
    """Returns the figures of finished runs of experiments/codecs.toml, and those that follow from them in virtual time. Added to
    ``earlier`` ones, they replace those of the same model and codec. ValueError: these are of another configuration."""
    from ina.lab.results import compare

    results = [result for folder in folders for result in compare.points(folder)]
    rows = [{"model": result.config.model, "codec": result.config.codec, "variant": variant(result.config),
             "rates": {summary["job"]: {name: summary[name] for name in FIGURES} for summary in result.summary}}
            for result in results]
    config = {key: getattr(results[0].config, key) for key in ("workers", "batch", "steps", "target", "seed", "values", "delay")}
    if earlier is not None and earlier["config"] != config:
        raise ValueError(f"{folders}: of {config}, expected {earlier['config']}")
    parameters = {result.config.model: result.runs[0]["stats"]["model"]["parameters"] for result in results}
    environment = json.loads((results[0].path / "environment.json").read_text())
    kept = {name: environment[name] for name in ENVIRONMENT}
    data = results[0].runs[0]["stats"]["model"]["data"]
    if earlier is not None:
        new = {(row["model"], name(row)) for row in rows}
        rows = [row for row in earlier["rows"] if (row["model"], name(row)) not in new] + rows
        parameters = earlier["parameters"] | parameters
        kept = added(earlier["environment"], kept)
    for row in rows:  # compute does not depend on the codec: the least is what other work on the machine disturbed least
        compute = min(each["rates"][RATES[0]]["compute_ms"] for each in rows if each["model"] == row["model"])
        for figures in row["rates"].values():
            steps = figures["target_steps"]
            figures["compute_ms"] = compute
            step = compute + figures["codec_ms"] + figures["network_ms"]
            figures["target_s"] = None if steps is None else 1e-3 * steps * step
    return {"environment": kept, "config": config, "parameters": parameters, "data": data, "rows": rows,
            "sparse": sparse() if earlier is None else earlier["sparse"], "plans": plans(rows, parameters, config),
            **({"testbed": []} if earlier is None else {name: earlier[name] for name in earlier if name.startswith("testbed")})}


def added(earlier: dict, environment: dict) -> dict:
    """Returns an earlier environment, with day and commit of one whose results were added."""
    return earlier | {"added": sorted({*earlier.get("added", []), f"{environment['time'][:10]} {environment['commit']}"})}


def keep_testbed(folders: Sequence[Path], kept: dict) -> dict:
    """Returns the figures that are kept, with those of finished runs of experiments/codecs-testbed.toml, which replace those of
    the same model and codec; of a point that ran twice, those of the later folder count."""
    from ina.lab.results import compare

    results = [result for folder in folders for result in compare.points(folder)]
    rows = {(result.config.model, result.config.codec):
            {"model": result.config.model, "codec": result.config.codec, "workers": result.config.workers,
             **{name: summary[name] for name in TESTBED}} for result in results for summary in result.summary}
    older = [row for row in kept["testbed"] if (row["model"], row["codec"]) not in rows]
    environment = json.loads((results[0].path / "environment.json").read_text())
    environment = {name: environment[name] for name in ENVIRONMENT}
    if older and "testbed_environment" in kept:
        environment = added(kept["testbed_environment"], environment)
    return {**kept, "testbed": sorted([*older, *rows.values()], key=lambda row: row["model"]), "testbed_environment": environment}


def variant(config: Compression) -> str:
    """Returns in what a training differs from others by its codec: the optimizer, the type of gradients; empty: nothing."""
    return ", ".join(value for value, usual in ((config.optimizer, "sgd"), (config.dtype, "float32")) if value != usual)


def name(row: dict) -> str:
    """Returns the codec, with the variant of its training, if it is one."""
    return f"{row['codec']} ({row['variant']})" if row.get("variant") else row["codec"]


def sparse() -> list[dict]:
    """Returns how many times as fast as the uncompressed sum codecs of sparse tensors are, in virtual time at 100 Gb/s."""
    from ina.lab.kinds.allreduce import AllReduce

    def milliseconds(**keys: object) -> float:
        (result,) = AllReduce(elements=ELEMENTS, workers=8, rate=100e9, dtype="float32", **keys).measure()
        return 1e3 * result.seconds

    dense = milliseconds()
    return [{"codec": codec, "sparsity": sparsity,
             "faster": dense / milliseconds(codec=codec, protocol=protocol, sparsity=sparsity)}
            for codec, protocol, shares in SPARSE for sparsity in shares]


def plans(rows: Sequence[dict], parameters: dict[str, int], config: dict) -> list[dict]:
    """Returns what the planner estimates to be fastest, of all codecs, from the bytes and seconds that were measured."""
    from ina import codecs
    from ina.aggregation import protocols
    from ina.aggregation.worker.config import ETHERNET_OVERHEAD
    from ina.codecs.costs import Cost
    from ina.codecs.planner import DEFAULT, Link, propose

    values = config["values"]
    headers = (protocols.frame_bytes(protocols.DEFAULT, values) + ETHERNET_OVERHEAD) / (4 * values)
    chosen = []
    for model, elements in parameters.items():
        costs = {row["codec"]: Cost(1e-3 * figures["codec_ms"], round(1e3 * figures["up_kb"]), round(1e3 * figures["down_kb"]),
                                    codecs.named(row["codec"]).rounds)
                 for row in rows if row["model"] == model and row["codec"] != DEFAULT and not row.get("variant")
                 for figures in [next(iter(row["rates"].values()))]}
        for rate in PLANNED:
            plan = propose(elements, config["workers"], costs, Link(rate, 4 * config["delay"], headers))
            chosen.append({"model": model, "rate": rate, "way": plan.way, "reason": plan.reason})
    return chosen


# ---- writing


def pages() -> dict[str, str]:
    """Page and plot, by their paths below docs/results/; none before figures are kept."""
    if not KEPT.exists():
        return {}
    kept = json.loads(KEPT.read_text())
    return {"codecs.md": page(kept), **{f"plots/codecs-{model}.svg": plot(kept, model) for model in kept["parameters"]}}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows]) + "\n"


def page(kept: dict) -> str:
    config, environment = kept["config"], kept["environment"]
    target = f"{config['target']:.0%}"
    parts = [
        "# Trainings by codec\n\n<!-- Written by docs/site/codec_results.py of docs/results/codecs.json: see there. -->\n",
        f"`ina experiment run codecs`: {kept['data']}, {config['workers']} workers, {config['steps']} steps of "
        f"{config['batch']}\nimages a worker, SGD with momentum (of `dgc` the codec's own) where no other optimizer is named, "
        "one bucket, the same seed and "
        "learning rate\nfor all codecs: none is tuned for one. The training is real; its workers are in one process, and their "
        "gradients\nare summed as a switch gives it (`ina.codecs.reduced`; `block` exactly, without a packet's one exponent). "
        "What travels in a step then goes through the "
        "compiled\nswitch program in virtual time, with "
        f"{config['values']} values in a packet and links of {config['delay'] * 1e6:g} us.\n",
        "- *kB up, down*: values of a worker in a step, without headers.\n"
        "- *codec*: one worker's encoding and decoding on one core of this machine, the 10th percentile of the steps. That\n"
        "  of `block` counts as 0, since the worker converts while it makes packets: codecs look slower beside it than they\n"
        "  are.\n"
        "- *exchange*: how many times as fast as the uncompressed sum, codec included; in brackets without the codec's time.\n"
        f"- *to {target}*: steps to that test accuracy (of 2,000 images, every 20 steps, one seed: 20 steps more or less "
        "say nothing),\n  and time: compute of a worker (one core), codec and network after one another.\n"
        "- *Not modelled*: an exchange that hides behind the backward pass, several buckets, codecs on accelerators or several\n"
        "  cores, and what hosts take for a packet.\n",
    ]
    for model, elements in kept["parameters"].items():
        rows = [row for row in kept["rows"] if row["model"] == model]
        compute = min(row["rates"][RATES[0]]["compute_ms"] for row in rows)
        what = "Model `small`: a CNN" if model != "transformer" else "A transformer"
        parts.append(f"## {what} of {elements:,} parameters\n\n"
                     f"Compute of a worker takes {compute:.1f} ms a step.\n")
        head = ["codec", "kB up", "kB down", "loss", "accuracy", f"steps to {target}", "codec, ms",
                *(f"exchange, {rate}" for rate in RATES), *(f"s to {target}, {rate}" for rate in RATES)]
        parts.append(table(head, [line(row) for row in rows]))
        others = sorted({name(row) for row in kept["rows"]} - {name(row) for row in rows})
        parts.append(f"![Bytes of a step, accuracy, and seconds to {target} by codec](plots/codecs-{model}.svg)\n")
        if others:
            parts.append(f"Not trained yet by: {', '.join(f'`{codec}`' for codec in others)}.\n")
    parts.append(testbed(kept))
    parts.append("## Where compression pays\n\nThe planner's estimate (`codec = \"auto:...\"` with all codecs above) by the "
                 "time of an exchange\nalone, whatever a codec costs in accuracy, from the bytes and seconds that were "
                 "measured:\n")
    parts.append(table(["model", "link", "fastest", "why"],
                       [[plan["model"], rate_text(plan["rate"]), f"`{plan['way']}`", plan["reason"].partition(": ")[2]]
                        for plan in kept["plans"]]))
    parts.append(f"## Beside published figures\n\nSparse tensors in virtual time: 8 workers, {ELEMENTS:,} float32 at "
                 "100 Gb/s, blocks of "
                 "256 that are zero at random on each worker; how many times as fast as the uncompressed sum, "
                 "without the codec's "
                 "own time.\n")
    parts.append(table(["codec", "blocks that are zero", "times as fast"],
                       [[f"`{row['codec']}`", f"{row['sparsity']:.0%}", f"{row['faster']:.2f}"]
                        for row in kept["sparse"]]))
    parts.append(table(["system", "published", "not modelled here"], PUBLISHED))
    parts.append(thc(kept))
    versions = f"Linux {str(environment['kernel']).split('-')[0]}, Python {environment['python']}, torch {environment['torch']}"
    parts.append(f"<small>{environment['time'][:10]}, commit `{environment['commit']}`, {environment['cpu']}, "
                 f"{environment['cores']} cores, other work beside it, {versions}"
                 f"{''.join(f'; added: {each}' for each in environment.get('added', []))}</small>\n")
    return "\n".join(parts)


def testbed(kept: dict) -> str:
    """Returns the section on trainings in the testbed, beside what virtual time says of them; empty without any."""
    if not kept["testbed"]:
        return ""
    estimated = {(row["model"], name(row)): row["rates"][RATES[0]]["target_s"] for row in kept["rows"]}
    target, workers = f"{kept['config']['target']:.0%}", kept["testbed"][0]["workers"]
    head = ["codec", "kB up", "kB down", "loss", "accuracy", f"steps to {target}", f"s to {target}",
            "virtual time's estimate, s", "step, ms", "all-reduce, ms", "times as fast", "link's use"]
    environment = kept["testbed_environment"]
    parts = [
        f"## On links of 100 Mb/s, in the testbed\n\n`ina experiment run codecs-testbed`: {workers} ranks of torch as processes "
        "in network namespaces and a switch of its own, by the clock on the wall. One bucket, whose all-reduce begins when the "
        "backward pass has ended, as in the estimate; the processes share this machine's cores, so compute and codecs take "
        "longer than there. `thc-lookup`, `omnireduce-ahead`, `lanes-16-8` and `fpisa` run with switch programs of their own. "
        "Optimizers other than SGD and 16-bit gradients are trained in one process only, above. Points that other work on the "
        "machine disturbed ran twice, among them six that were chosen as their steps took long; the later figures count, "
        "whatever they are.\n"
    ]
    for model in dict.fromkeys(row["model"] for row in kept["testbed"]):
        trained = [row for row in kept["testbed"] if row["model"] == model]
        dense = next(row["allreduce_ms"] for row in trained if row["codec"] == "block")
        rows = [[f"`{row['codec']}`", f"{row['up_kb']:.1f}", f"{row['down_kb']:.1f}", f"{row['loss']:.3f}",
                 f"{row['accuracy']:.1%}", figure(row["target_steps"], "d"), figure(row["target_s"], ".2f"),
                 figure(estimated.get((row["model"], row["codec"])), ".2f"), f"{row['step_ms']:.1f}",
                 f"{row['allreduce_ms']:.2f}", f"{dense / row['allreduce_ms']:.2f}", f"{row['link_use']:.0%}"]
                for row in trained]
        parts += [f"Model `{model}`, {trained[0]['steps']} steps:\n", table(head, rows)]
        others = sorted({row["codec"] for row in kept["testbed"]} - {row["codec"] for row in trained})
        if others:
            parts.append(f"Not trained yet by: {', '.join(f'`{codec}`' for codec in others)}.\n")
    parts.append(f"<small>{environment['time'][:10]}, commit `{environment['commit']}`, {environment['cpu']}, "
                 f"{environment['cores']} cores, other work beside it"
                 f"{''.join(f'; added: {each}' for each in environment.get('added', []))}</small>\n")
    return "\n".join(parts)


def figure(value: float | None, form: str) -> str:
    """Returns a figure as the format ``form`` has it; None: nothing was reached."""
    return "—" if value is None else format(value, form)


def line(row: dict) -> list[str]:
    first = row["rates"][RATES[0]]
    loss = "diverged" if first["loss"] is None else f"{first['loss']:.3f}"
    return [
        f"`{name(row)}`", f"{first['up_kb']:.1f}", f"{first['down_kb']:.1f}", loss,
        f"{first['accuracy']:.1%}", figure(first["target_steps"], "d"), f"{first['codec_ms']:.2f}",
        *(f"{row['rates'][rate]['faster']:.2f} ({row['rates'][rate]['network_faster']:.2f})" for rate in RATES),
        *(figure(row["rates"][rate]["target_s"], ".2f") for rate in RATES),
    ]


def thc(kept: dict) -> str:
    """Returns a sentence on THC's time to accuracy beside the published one; empty without it."""
    sentences = []
    for model in kept["parameters"]:
        rows = {name(row): row["rates"] for row in kept["rows"] if row["model"] == model}
        for codec in ("thc", "thc-lookup"):
            if codec in rows and all(rows[c][RATES[0]]["target_s"] for c in ("block", codec)):
                ratios = (rows["block"][rate]["target_s"] / rows[codec][rate]["target_s"] for rate in RATES)
                text = ", ".join(f"{ratio:.2f} at {rate}" for ratio, rate in zip(ratios, RATES, strict=True))
                sentences.append(f"`{codec}` with the model `{model}` reaches {kept['config']['target']:.0%} sooner than the "
                                 f"uncompressed sum by these factors: {text}.")
    return " ".join(sentences) + "\n" if sentences else ""


def rate_text(rate: float) -> str:
    return f"{rate / 1e9:g} Gb/s" if rate >= 1e9 else f"{rate / 1e6:g} Mb/s"


def plot(kept: dict, model: str) -> str:
    """A line for each codec, by bytes: those of a step (the larger direction, logarithmic), test accuracy, and the time to the
    target accuracy on the slowest links, both from 0, as SVG."""
    lines = sorted((max(figures["up_kb"], figures["down_kb"]), -figures["accuracy"], name(row), figures["target_s"])
                   for row in kept["rows"] if row["model"] == model for figures in [row["rates"][RATES[0]]])
    low, high = math.log10(lines[0][0]) - 0.1, math.log10(lines[-1][0]) + 0.1
    top = math.ceil(-5 * min(negative for _, negative, *_ in lines)) / 5
    longest = max((seconds for *_, seconds in lines if seconds), default=1.0)
    names, middle, gap, right, end, step, head = 150, 360, 55, 600, 860, 15, 40
    base = head + step * len(lines)

    def bytes_at(kb: float) -> float:
        return names + (middle - names) * (math.log10(kb) - low) / (high - low)

    def accuracy_at(accuracy: float) -> float:
        return middle + gap + (right - middle - gap) * accuracy / top

    def seconds_at(seconds: float) -> float:
        return right + gap + (end - right - gap) * seconds / longest

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {end + 50} {base + 25}" font-family="sans-serif" '
             'font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{names}" y="14">{escape(model)}: kB a step (logarithmic)</text>',
             f'<text x="{middle + gap}" y="14">accuracy after {kept["config"]["steps"]} steps</text>',
             f'<text x="{right + gap}" y="14">seconds to {kept["config"]["target"]:.0%} at {RATES[0]}</text>']
    scale = [(bytes_at(kb), f"{kb:g}") for kb in (0.1, 1, 10, 100, 1000, 10_000) if low <= math.log10(kb) <= high]
    scale += [(accuracy_at(fifth / 5), f"{fifth / 5:.0%}") for fifth in range(round(5 * top) + 1)]
    scale += [(seconds_at(at), f"{at:g}") for at in (0, 1, 2, 4, 8, 16, 32) if at <= longest]
    for x, text in scale:
        parts.append(f'<line x1="{x:.1f}" y1="{head - 10}" x2="{x:.1f}" y2="{base}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{base + 14}" text-anchor="middle" fill="#666">{text}</text>')
    for number, (kb, negative, codec, seconds) in enumerate(lines):
        y, colour = head + step * number, "#ef6c00" if codec == "block" else "#3f51b5"
        accuracy = accuracy_at(-negative)
        dots = [(bytes_at(kb), f"{kb:.3g}"), (accuracy, f"{-negative:.1%}")]
        if seconds is None:
            parts.append(f'<text x="{right + gap + 6}" y="{y + 4}" fill="#666">not reached</text>')
        else:
            dots.append((seconds_at(seconds), f"{seconds:.2f}"))
            parts.append(f'<line x1="{right + gap}" y1="{y}" x2="{end}" y2="{y}" stroke="#eee"/>')
        parts.append(f'<text x="{names - 8}" y="{y + 4}" text-anchor="end">{escape(codec)}</text>'
                     f'<line x1="{names}" y1="{y}" x2="{middle}" y2="{y}" stroke="#eee"/>'
                     f'<line x1="{middle + gap}" y1="{y}" x2="{accuracy:.1f}" y2="{y}" stroke="{colour}" '
                     'stroke-opacity="0.4"/>')
        for x, text in dots:
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{colour}"/>'
                         f'<text x="{x + 6:.1f}" y="{y + 4}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description="Keeps the figures of trainings by codecs, of which `make docs` writes a page.")
    parser.add_argument("--add", action="store_true", help="to those that are kept, instead of them")
    parser.add_argument("--testbed", action="store_true", help="of `ina experiment run codecs-testbed`, beside the others")
    parser.add_argument("--sparse", action="store_true", help="measure sparse tensors again, and keep the rest")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of a finished `ina experiment run codecs`")
    arguments = parser.parse_args()
    if not arguments.folders and not arguments.sparse:
        parser.error("the following arguments are required: FOLDER")
    earlier = json.loads(KEPT.read_text()) if arguments.add or arguments.testbed or arguments.sparse else None
    if arguments.sparse:
        figures = {**earlier, "sparse": sparse()}
    else:
        figures = keep_testbed(arguments.folders, earlier) if arguments.testbed else keep(arguments.folders, earlier)
    KEPT.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{KEPT}: written; `make docs` writes the page")
