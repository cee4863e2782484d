"""`ina plot`: which runs make a point, its spread, the files' formats, and what is refused; and folders that cannot be read."""

import csv
import html
import io
import statistics
import warnings

import pytest
from capabilities import need

from ina import cli
from ina.base import paths
from ina.lab import plan
from ina.lab.kind import GUIDE, kinds
from ina.lab.kinds.allreduce import AllReduce, Reduction
from ina.lab.kinds.asynchronous import Asynchronous, Learned
from ina.lab.results import plot, record, report
from ina.lab.results.words import WORDS

pytestmark = pytest.mark.build  # a results folder has the hash of the preprocessed program
SEEDS = (1, 2, 3)


def seconds(workers: int, loss: float, seed: int) -> float:
    return workers * (1 + 100 * loss) * (1 + 0.1 * (seed * seed))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for workers in (2, 4):
        for loss in (0.0, 0.001, 0.01):
            for seed in SEEDS:
                config = AllReduce(workers=workers, loss=loss, seed=seed)
                stats = {"workers": {"tx_packets": 100, "retransmissions": int(1000 * loss)}}
                run = Reduction("job 0", workers, 1000, seconds(workers, loss, seed), "h1>s1", 1000, 0.25 * seed, None, stats)
                record.Folder(path / f"{workers}-{loss}-{seed}", config).save([run], {}, finished=True)
    return sorted(map(str, path.iterdir()))


def drawn(folders, tmp_path, *arguments: str, name: str = "a.csv") -> list[dict]:
    target = tmp_path / name
    assert cli.main(["plot", *folders, "-o", str(target), *arguments]) == 0
    return list(csv.DictReader(io.StringIO(target.read_text()))) if name.endswith("csv") else []


def test_points_are_medians_over_seeds_with_least_and_most(folders, tmp_path):
    rows = drawn(folders, tmp_path)
    assert {row["line"] for row in rows} == {"workers 2", "workers 4"} and len(rows) == 6
    for row in rows:
        values = [1e3 * seconds(int(row["line"][-1]), float(row["loss"]), seed) for seed in SEEDS]
        assert float(row["all-reduce, ms"]) == pytest.approx(statistics.median(values))
        assert (float(row["low"]), float(row["high"])) == pytest.approx((min(values), max(values)))
        assert row["runs"] == "3"


def test_means_deviations_and_a_chosen_axis(folders, tmp_path):
    rows = drawn(folders, tmp_path, "--errors", "deviation", "--x", "workers", "--y", "goodput_gbps", "--by", "loss")
    assert len(rows) == 6
    values = [8e-6 / seconds(4, 0.01, seed) for seed in SEEDS]
    row = next(row for row in rows if (row["line"], row["workers"]) == ("loss 0.01", "4"))
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    assert float(row["goodput, Gb/s"]) == pytest.approx(mean)
    assert (float(row["low"]), float(row["high"])) == pytest.approx((mean - deviation, mean + deviation))


def test_keys_that_follow_from_others_are_no_axis(tmp_path, capsys):
    """Methods differ in how many workers are enough, and in local steps; a run's name is its method."""
    methods = ("synchronous", "local", "fedsa")
    for method in methods:
        for seed in SEEDS:
            config = Asynchronous(method=method, seed=seed).resolved()
            run = Learned(method, 8, 0.5, 2.0, 10, [(0.0, 0, 0.1), (1.0, 10, 0.1 * seed)], [0, 1], 1, 0, 0.5, "h1>s1", 1000, 0.5,
                          {"workers": {"retransmissions": 0}})
            record.Folder(tmp_path / f"{method}-{seed}", config).save([run], {}, finished=True)
    folders = sorted(map(str, tmp_path.iterdir()))
    rows = drawn(folders, tmp_path, "--y", "score")
    assert {(row["line"], row["method"]) for row in rows} == {("asynchronous", method) for method in methods}
    assert all(float(row["low"]) < float(row["high"]) for row in rows)
    (tmp_path / "a.csv").unlink()
    assert cli.main(["plot", *folders]) == 0
    assert "method" in (listed := capsys.readouterr().out) and "least" not in listed
    for number in (2, 4, 6):  # one that is chosen is an axis
        config = Asynchronous(method="first", least=number).resolved()
        run = Learned("first", 8, 0.5, 2.0, 10, [(0.0, 0, 0.1)], [0, 1], 1, 0, 0.5, "h1>s1", 1000, 0.5,
                      {"workers": {"retransmissions": 0}})
        record.Folder(tmp_path / f"least-{number}", config).save([run], {}, finished=True)
    rows = drawn(sorted(map(str, tmp_path.glob("least-*"))), tmp_path, "--y", "score")
    assert [(row["line"], row["least"]) for row in rows] == [("first", str(number)) for number in (2, 4, 6)]


def test_a_distribution_has_every_run_of_a_line(folders, tmp_path):
    rows = drawn(folders, tmp_path, "--cdf", "--by", "workers", "--y", "link_use")
    assert [float(row["share"]) for row in rows] == pytest.approx([(i + 1) / 9 for i in range(9)] * 2)
    assert [float(row["use of the busiest link, %"]) for row in rows] == [25.0] * 3 + [50.0] * 3 + [75.0] * 3 + (
        [25.0] * 3 + [50.0] * 3 + [75.0] * 3)


@pytest.mark.parametrize("name, start", [("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_formats_are_what_their_names_say_and_equal_each_time(folders, tmp_path, name, start):
    need("matplotlib")
    for arguments in ([], ["--cdf", "--log", "x"], ["--log", "x,y", "--size", "page"]):
        drawn(folders, tmp_path, *arguments, name=name)
        first = (tmp_path / name).read_bytes()
        drawn(folders, tmp_path, *arguments, name=name)
        assert first.startswith(start) and (tmp_path / name).read_bytes() == first
    if name == "a.svg":
        assert b"all-reduce, ms" in first and b"workers 2" in first, "letters stay letters"
        assert b">0.001<" in first, "a tick at each of a few places"


@pytest.mark.parametrize("across", ["workers", "faults", None])
@pytest.mark.parametrize("count", [2, 6, 16])
def test_axes_keep_their_size_beside_long_names(tmp_path, monkeypatch, across, count):
    """Two trainings with unlike settings, and more of them: the legend stands below the axes, within the figure."""
    need("matplotlib")
    from matplotlib import pyplot

    figures, close = [], pyplot.close
    monkeypatch.setattr(pyplot, "close", lambda figure: (figures.append(figure), close(figure)))
    names = [f"model transformer, faults loss=0.0{i},dup=0.01,reorder=0.01,corrupt=0.005,seed={i}, ina (P4 switch)"
             for i in range(count)]
    drawing = plot.Plot({name: [(i if across == "workers" else name.split(", ")[1], 40.0 + i)] for i, name in enumerate(names)},
                        across, "test accuracy, %", "range")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in plot.SIZES:
            plot.write(drawing, tmp_path / "a.png", size)
    for figure, (width, height) in zip(figures, plot.SIZES.values(), strict=True):
        figure.set_dpi(plot.DPI)  # at which it was laid out
        (axes,), (legend,) = figure.axes, figure.legends
        place, below = axes.get_window_extent(), legend.get_window_extent()
        assert place.width > 0.7 * width * figure.dpi and place.height > 0.6 * height * figure.dpi
        assert below.x0 >= 0 and below.y0 >= 0 and below.x1 <= width * figure.dpi
        assert below.y1 <= axes.get_tightbbox().y0, "labels of the axes and the legend do not meet"
        assert [text.get_text().replace("\n", " ").replace(",", ", ").replace(",  ", ", ") for text in legend.get_texts()] == [
            name.replace(",", ", ").replace(",  ", ", ") for name in names]


@pytest.mark.parametrize("arguments, message", [
    (["--y", "speed", "-o", "a.csv"], "no figure 'speed' in these runs; there are: time_ms, goodput_gbps"),
    (["--x", "speed", "-o", "a.csv"], "kind allreduce has no key 'speed'; the runs differ in: workers, seed, loss"),
    (["--x", "workers", "--by", "seed", "-o", "a.csv"], "the runs of a point differ in loss, too: add them to --by"),
    (["-o", "a.jpg"], "a.jpg: expected a name that ends with .pdf, .svg, .png, .csv"),
    (["-o", "nowhere/a.csv"], "nowhere/a.csv: No such file or directory"),
    (["-o", "a.png", "--log", "z"], "--log z: expected x, y or x,y"),
    (["-o", "a.png", "--y", "retransmissions", "--log", "y"], "some are 0 or less"),
    (["-o", "a.svg", "--style", "nice"], "--style nice: expected a .mplstyle file of this machine (nothing is fetched), or one "),
    (["-o", "a.csv", "--cdf", "--x", "loss"], "--x loss: the horizontal axis of a distribution has the figure"),
    (["-o", "a.png", "--cdf", "--log", "y"], "the shares of a distribution begin at 0"),
])
def test_what_cannot_be_drawn_is_named(folders, tmp_path, monkeypatch, capsys, arguments, message):
    need("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", *folders, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--cdf"]])
def test_lines_have_the_colours_of_a_chosen_style(folders, tmp_path, arguments):
    need("matplotlib")
    own = tmp_path / "mine.mplstyle"
    own.write_text("axes.prop_cycle: cycler('color', ['0a0b0c', '0d0e0f'])\naxes.facecolor: 010203\n")
    looks = {"": ("#1668b8", "#c65a11"), str(own): ("#0a0b0c", "#0d0e0f", "#010203"), "grayscale": ("#666666",)}
    for style, colours in looks.items():
        drawn(folders, tmp_path, *arguments, *(["--style", style] if style else []), name="a.svg")
        image = (tmp_path / "a.svg").read_text()
        assert all(colour in image for colour in colours) and (style == "" or "#1668b8" not in image)


def test_without_a_file_figures_and_keys_are_listed(folders, capsys):
    assert cli.main(["plot", *folders]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert {("figure", "time_ms"), ("figure", "link_use"), ("key", "loss"), ("key", "workers")} <= set(map(tuple, listed))


@pytest.mark.parametrize("url", ["https://example.org/a.mplstyle", "http://127.0.0.1:9/a.mplstyle", "ftp://example.org/a",
                                 "file:mine.mplstyle", "file:folder/mine.mplstyle"])
def test_a_style_is_never_fetched(folders, tmp_path, monkeypatch, capsys, url):
    need("matplotlib")
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("urllib.request.urlopen", lambda target, **options: opened.append(target) or open("mine.mplstyle", "rb"))
    (tmp_path / "mine.mplstyle").write_text("axes.facecolor: 010203\n")
    assert cli.main(["plot", *folders, "-o", "a.svg", "--style", url]) == 1
    message = capsys.readouterr().err
    assert opened == [] and not (tmp_path / "a.svg").exists()
    assert f"ina: --style {url}: expected a .mplstyle file of this machine (nothing is fetched), or one of " in message
    assert "grayscale" in message
    (tmp_path / url.rpartition("/")[0]).mkdir(parents=True, exist_ok=True)  # a file of that very name is a file
    (tmp_path / url).write_text("axes.facecolor: 040506\n")
    assert cli.main(["plot", *folders, "-o", "a.svg", "--style", url]) == 0
    assert "#040506" in (tmp_path / "a.svg").read_text() and opened == []


def test_a_style_that_is_no_text_is_named(folders, tmp_path, capsys):
    need("matplotlib")
    style = tmp_path / "mine.mplstyle"
    style.write_bytes(b"lines.color: \xff\n")
    assert cli.main(["plot", *folders, "-o", str(tmp_path / "a.svg"), "--style", str(style)]) == 1
    assert f"ina: --style {style}: not a text file: expected a .mplstyle file in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "plot"])
def test_folders_that_cannot_be_read_are_skipped_and_named(folders, tmp_path, capsys, command):
    need("matplotlib")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "metrics.json").write_text('{"schema": 2')
    target = tmp_path / "a.csv"
    flag = ["-o"] if command == "plot" else ["--output"]
    assert cli.main([command, *folders, str(broken), *flag, str(target)]) == 0
    assert f"ina: skipped: {broken}/metrics.json" in capsys.readouterr().err and target.read_text()
    assert cli.main([command, str(broken), *flag, str(target)]) == 1


def test_words_are_of_figures_that_there_are():
    rows = {row.key: row for kind in kinds().values() for row in kind.rows}
    assert WORDS.keys() <= rows.keys()
    for kind in kinds().values():
        assert kind.meanings.keys() <= {row.key for row in kind.rows}, kind.kind


def test_a_figure_has_the_meaning_of_its_kind():
    """Packets, updates without room, and updates that are too stale: each is `dropped`."""
    texts = set()
    for name in ("sharing", "updates", "asynchronous"):
        kind = kinds()[name]
        texts.add(report.html_words(kind, [row for row in kind.rows if row.key == "dropped"]))
    assert len(texts) == 3 and all("<dd>" in text for text in texts)


def test_every_kind_has_a_section_of_the_guide():
    headings = {line.lstrip("#").strip().replace("`", "") for line in (paths.root() / GUIDE).read_text().splitlines()
                if line.startswith("##")}
    for kind in kinds().values():
        assert kind.guide in headings, kind.kind
        section = kind.guidance()
        assert plan.show(kind).splitlines()[0] == f"# {section}" and html.escape(section) in report.html_guide(kind)
