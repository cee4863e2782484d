// View "Runs": results folders, one run with its progress, and comparison.

import { look, number, plot } from "/plot.js";

const QUICK = { name: "experiment", kind: "kind", protocol: "protocol", backend: "back end" };
const LIVE = { loss: "training loss", step_ms: "step, ms", allreduce_ms: "in all-reduce, ms", hops_per_s: "packet-hops a second" };
const LISTED = { kind: "Kind", state: "State", protocols: "Protocol", backends: "Back end" };
const MOST_LINES = 16;
const MOST_ROWS = 500;
const SERIES = ["#1668b8", "#c65a11", "#3a8a3a", "#8f3aa8", "#a8963a", "#3a97a8", "#a83a5b", "#555f6b"];

let stops = [];

export function mount(element, shell) {
  const view = new View(element, shell);
  stops = [shell.poll(() => view.list(), 3), shell.poll(() => view.follow(), 1)];
}

export function unmount() {
  stops.forEach((stop) => stop());
  stops = [];
}

const query = (pairs) => pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
const date = (seconds) => new Date(seconds * 1000).toLocaleString("sv-SE");

class View {
  constructor(element, shell) {
    const { make } = shell;
    this.shell = shell;
    this.seen = this.progress = "";
    this.runs = [];
    this.chosen = new Set();
    this.opened = null;
    this.state = null;
    this.where = new Map();
    this.sort = null;
    this.table = null;
    this.words = make("input", { type: "search", "aria-label": "Name contains", placeholder: "name", oninput: () => this.rows() });
    this.selects = Object.fromEntries(Object.entries(LISTED).map(([key, title]) => [key, make("select", { "aria-label": title, onchange: () => this.rows() })]));
    this.about = make("p", { class: "soft" });
    this.body = make("tbody");
    this.skipped = make("div");
    this.compareButton = make("button", { type: "button", onclick: () => this.compare([...this.chosen]) });
    this.detail = make("section", { "aria-label": "Run" });
    this.live = make("div");
    this.comparison = make("section", { "aria-label": "Comparison" });
    const heads = ["", "Run", "Kind", "State", "Begun", "Points", "Figures"];
    element.append(make("h2", {}, "Runs"), this.about,
      make("p", { class: "filters" }, this.words, Object.entries(this.selects).map(([key, select]) => make("label", {}, `${LISTED[key]} `, select))),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Results folders" },
        make("table", { id: "runs" }, make("thead", {}, make("tr", {}, heads.map((head) => (head ? make("th", { scope: "col" }, head) : make("td"))))), this.body)),
      this.skipped,
      make("p", { class: "filters" }, this.compareButton, make("button", { type: "button", onclick: () => this.compare(this.shown().map((run) => run.run)) }, "Compare all in the list")),
      this.detail, this.comparison);
    this.count();
  }

  // ---- the list

  async list() {
    const answer = await this.shell.get("/api/runs");
    const text = JSON.stringify(answer);
    if (text === this.seen) return;
    this.seen = text;
    this.runs = answer.runs;
    const { make } = this.shell;
    this.about.textContent = `${answer.runs.length} runs and sweeps in ${answer.roots.join(", ")}` + (answer.left_out ? `; ${answer.left_out} older ones are left out` : "");
    for (const [key, select] of Object.entries(this.selects)) this.options(select, [...new Set(answer.runs.flatMap((run) => run[key]))].sort());
    this.skipped.replaceChildren(...(answer.skipped.length ? [make("details", {}, make("summary", {}, `${answer.skipped.length} skipped`),
      make("ul", {}, answer.skipped.map((each) => make("li", {}, `${each.run}: ${each.reason}`))))] : []));
    this.rows();
  }

  options(select, values) {
    const kept = select.value;
    select.replaceChildren(this.shell.make("option", { value: "" }, "all"), ...values.map((value) => this.shell.make("option", { value }, value)));
    select.value = values.includes(kept) ? kept : "";
  }

  shown() {
    const words = this.words.value.toLowerCase();
    return this.runs.filter((run) => run.title.toLowerCase().includes(words)
      && Object.entries(this.selects).every(([key, select]) => !select.value || [run[key]].flat().includes(select.value)));
  }

  rows() {
    const { make } = this.shell;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.body.replaceChildren(...this.shown().map((run) => {
      const tick = make("input", { type: "checkbox", "aria-label": `choose ${run.run}`, "data-key": `tick ${run.run}`, onchange: () => {
        if (tick.checked) this.chosen.add(run.run); else this.chosen.delete(run.run);
        this.count();
      } });
      tick.checked = this.chosen.has(run.run);
      const figures = (run.rows ?? []).map((row) => `${row.name}: ${row.figures.slice(0, 4).map((figure) => `${figure.short} ${figure.text}`).join(", ")}`);
      return make("tr", {}, make("td", {}, tick),
        make("td", {}, make("button", { type: "button", "data-key": `open ${run.run}`, onclick: () => this.open(run.run) }, run.title)),
        make("td", {}, run.kind), this.stateCell(run.state), make("td", { class: "whole" }, date(run.began)),
        make("td", { class: "number" }, run.points ? `${run.points[0]} of ${run.points[1]}` : ""), make("td", {}, figures.map((text) => make("div", {}, text))));
    }));
    if (focused) [...this.body.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
  }

  stateCell(state) {
    return this.shell.make("td", { class: state === "running" ? "good" : state === "finished" ? null : "bad" }, state);
  }

  count() {
    this.compareButton.textContent = `Compare the ${this.chosen.size} chosen`;
    this.compareButton.disabled = this.chosen.size === 0;
  }

  // Waits for an answer, and shows the error in its place.
  async ask(answer, section) {
    try {
      return await answer;
    } catch (error) {
      section.replaceChildren(this.shell.make("p", { class: "bad", role: "alert" }, error.message));
      return null;
    }
  }

  // ---- one run

  async open(name) {
    this.opened = name;
    this.state = null;
    this.progress = "";
    this.live.replaceChildren();
    await this.show(name);
    await this.follow();
  }

  async show(name) {
    const run = await this.ask(this.shell.get(`/api/runs/one?${query([["run", name]])}`), this.detail);
    if (!run || this.opened !== name) return;
    const { make } = this.shell;
    const table = (head, rows) => this.wide(`${head.join(", ")} of ${name}`, head, rows);
    const pairs = (title, rows) => (rows.length ? make("details", {}, make("summary", {}, title), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
      make("table", {}, make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell, index) => make(index ? "td" : "th", index ? {} : { scope: "row" }, cell)))))))) : null);
    const link = run.report ? make("a", { href: `/api/runs/report?${query([["run", name]])}`, target: "_blank", rel: "noopener" }, "Report") : null;
    const parts = [make("h3", {}, run.title), make("p", {}, `${run.kind} ${run.name}, ${run.state}, begun ${date(run.began)} `, link), this.live];
    if (run.error) parts.push(make("pre", { class: "bad", tabindex: 0 }, run.error));
    if (run.sweep.length) {
      parts.push(make("details", { open: run.sweep.length <= 20 }, make("summary", {}, `${run.points[0]} of ${run.points[1]} points`),
        make("ul", {}, run.sweep.map((point) => make("li", {}, make("button", { type: "button", onclick: () => this.open(point.run) }, point.name), ` ${point.state}`)))));
    }
    if (run.rows.length) {
      parts.push(table(["", ...run.rows.map((row) => row.name)], run.rows[0].figures.map((figure, index) => [figure.heading, ...run.rows.map((row) => row.figures[index].text)])));
      parts.push(pairs("Words of the figures", run.rows[0].figures.filter((figure) => figure.words).map((figure) => [figure.heading, figure.words])));
    }
    if (run.caution) parts.push(make("p", { class: "bad" }, run.caution));
    if (run.why.length) {
      parts.push(make("h3", {}, "Why"), make("ul", {}, run.why.map((each) => make("li", {},
        run.sweep.length ? `${each.run.slice(each.run.lastIndexOf("/") + 1)}, ` : "", `${each.job}: `, make("strong", {}, each.bound), ` — ${each.shown}`))));
    }
    parts.push(pairs("The runs beside each other", Object.entries(run.comparison).map(([key, value]) => [key, number(value)])),
      pairs("Keys", run.keys.map((key) => [key.name, key.value, key.help])),
      pairs("Environment", Object.entries(run.environment).map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : String(value)])));
    if (run.skipped.length) parts.push(make("p", { class: "bad" }, `left out: ${run.skipped.join("; ")}`));
    this.detail.replaceChildren(...parts.filter((part) => part));
  }

  wide(title, head, rows) {
    const { make } = this.shell;
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, make("table", {},
      make("thead", {}, make("tr", {}, head.map((cell) => (cell ? make("th", { scope: "col" }, cell) : make("td"))))),
      make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell, index) => make(index ? "td" : "th", index ? { class: "number" } : { scope: "row" }, cell)))))));
  }

  // Shows the progress of the opened run; when its state changes, all of it again.
  async follow() {
    const name = this.opened;
    if (!name || (this.state !== null && this.state !== "running")) return;
    const answer = await this.shell.get(`/api/runs/live?${query([["run", name]])}`);
    if (this.opened !== name) return;
    const before = this.state;
    this.state = answer.state;
    const text = JSON.stringify(answer.jobs);
    if (text !== this.progress) {
      this.progress = text;
      this.drawProgress(answer);
    }
    if (before !== null && before !== answer.state) await this.show(name);
  }

  drawProgress(answer) {
    const { make } = this.shell;
    const parts = answer.jobs.map((job) => make("p", {}, make("label", {}, `${job.of || "all"}: ${number(job.total === 1 ? 100 * job.done : job.done)} ${job.total === null ? "" : job.total === 1 ? "%" : `of ${job.total}`} after ${number(Math.round(job.at))} s${job.words ? `, ${job.words}` : ""} `,
      make("progress", job.total === null ? {} : { value: job.done, max: job.total }))));
    const figures = [...new Set(answer.jobs.flatMap((job) => Object.keys(job.curves)))];
    for (const figure of figures) {
      const lines = answer.jobs.flatMap((job, index) => (job.curves[figure] ? [{ name: job.of || "all", ...look(SERIES, index), points: job.curves[figure].map(([x, y]) => ({ x, y })) }] : []));
      parts.push(plot(this.shell, { caption: `${LIVE[figure] ?? figure}, live`, across: lines[0].name === "all" ? "share done" : "step", label: LIVE[figure] ?? figure, lines, wide: this.width() }));
    }
    this.live.replaceChildren(...parts);
  }

  width() {
    return Math.max(320, Math.min(640, this.detail.clientWidth || 640));
  }

  // ---- comparison

  async compare(names) {
    this.compared = names;
    this.where = new Map();
    this.sort = null;
    this.figure = this.across = "";
    await this.load();
  }

  async load() {
    const table = await this.ask(this.shell.post("/api/runs/table", { runs: this.compared, where: Object.fromEntries(this.where) }), this.comparison);
    if (!table) return;
    this.table = table;
    this.drawTable();
  }

  drawTable() {
    const { make } = this.shell;
    const { table } = this;
    const columns = table.columns.filter((column) => column.name === "run" || new Set(table.rows.map((row) => row[column.name])).size > 1);
    const same = table.rows.length ? table.columns.filter((column) => !columns.includes(column) && table.rows[0][column.name] !== null) : [];
    const choose = (label, values, value, change) => {
      const select = make("select", { "aria-label": label, onchange: () => change(select.value) }, values.map(([key, text]) => make("option", { value: key }, text)));
      select.value = value;
      return make("label", {}, `${label} `, select);
    };
    const filter = (key, label) => choose(label, [["", "all"], ...table.values[key].map((value) => [value, value])], this.where.get(key) ?? "", (value) => {
      if (value) this.where.set(key, value); else this.where.delete(key);
      this.load();
    });
    const quick = Object.entries(QUICK).filter(([key]) => table.values[key]).map(([key, title]) => filter(key, title));
    const others = Object.keys(table.values).filter((key) => !(key in QUICK));
    const chosen = others.filter((key) => this.where.has(key) || key === this.filtered);
    const rest = others.length ? choose("filter by", [["", "a key"], ...others.map((key) => [key, key])], "", (key) => {
      this.filtered = key;
      this.drawTable();
    }) : null;
    const parts = [make("h3", {}, `Comparison: ${table.rows.length} rows`), make("p", { class: "filters" }, quick, chosen.map((key) => filter(key, key)), rest)];
    if (table.skipped.length) parts.push(make("p", { class: "bad" }, `left out: ${table.skipped.join("; ")}`));
    const rows = this.sorted(table.rows);
    if (rows.length > MOST_ROWS || table.left_out) parts.push(make("p", { class: "soft" }, `${Math.min(rows.length, MOST_ROWS)} of ${rows.length + table.left_out} rows are shown: choose fewer by filters`));
    const heads = columns.map((column) => make("th", { scope: "col", "aria-sort": this.sort?.[0] === column.name ? (this.sort[1] > 0 ? "ascending" : "descending") : null },
      make("button", { type: "button", title: [...new Set(Object.values(column.headings)), column.words].join("; ") || null, onclick: () => this.sortBy(column.name) }, column.unit ? `${column.name}, ${column.unit}` : column.name)));
    parts.push(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of the comparison" }, make("table", { id: "comparison" }, make("thead", {}, make("tr", {}, heads)),
      make("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => make("tr", {}, columns.map((column) => make("td", { class: typeof row[column.name] === "number" ? "number" : null }, number(row[column.name])))))))));
    parts.push(make("details", {}, make("summary", {}, "The same in all rows"), make("p", {}, same.map((column) => `${column.name} = ${number(table.rows[0][column.name])}`).join(", "))));
    this.comparison.replaceChildren(...parts, ...this.plots(columns, choose));
  }

  sortBy(name) {
    this.sort = [name, this.sort?.[0] === name ? -this.sort[1] : 1];
    this.drawTable();
    [...this.comparison.querySelectorAll("thead th")].find((each) => each.hasAttribute("aria-sort"))?.firstChild.focus();
  }

  sorted(rows) {
    if (!this.sort) return rows;
    const [name, way] = this.sort;
    const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    const absent = (row) => row[name] === null || row[name] === undefined;
    return [...rows].sort((a, b) => (absent(a) || absent(b) ? absent(a) - absent(b) : way * order(a[name], b[name])));
  }

  // A plot of the chosen figure for each meaning that kinds give it: unlike units share none.
  plots(columns, choose) {
    const { rows, columns: all } = this.table;
    const figures = all.filter((column) => column.figure && rows.some((row) => typeof row[column.name] === "number"));
    const keys = columns.filter((column) => !column.figure && column.name !== "run");
    if (!figures.length) return [];
    if (!figures.some((column) => column.name === this.figure)) this.figure = figures[0].name;
    if (!keys.some((column) => column.name === this.across)) this.across = keys.find((column) => rows.every((row) => typeof row[column.name] === "number") && column.name !== "seed")?.name ?? keys[0]?.name ?? "run";
    const figure = figures.find((column) => column.name === this.figure);
    const parts = [this.shell.make("p", { class: "filters" },
      choose("figure", figures.map((column) => [column.name, column.name]), this.figure, (value) => { this.figure = value; this.drawTable(); }),
      choose("against", [...keys.map((column) => [column.name, column.name]), ["run", "run"]], this.across, (value) => { this.across = value; this.drawTable(); }))];
    const headings = new Map();
    for (const row of rows.filter((each) => typeof each[this.figure] === "number")) {
      const heading = figure.headings[row.kind] ?? this.figure;
      headings.set(heading, [...(headings.get(heading) ?? []), row]);
    }
    for (const [heading, own] of headings) parts.push(...this.plotOf(heading, own, keys));
    return parts;
  }

  plotOf(heading, rows, keys) {
    const across = keys.find((column) => column.name === this.across);
    const by = keys.filter((column) => ![this.across, "seed", "name", "backends"].includes(column.name) && new Set(rows.map((row) => row[column.name])).size > 1);
    const several = new Set(rows.map((row) => row.backend ?? row.job)).size > 1;
    const lines = new Map();
    for (const row of rows) {
      const parts = by.map((column) => `${column.name} ${number(row[column.name])}`);
      if (several || !parts.length) parts.push(row.backend ?? row.job ?? row.kind);
      const name = parts.join(", ");
      if (!lines.has(name)) lines.set(name, { backend: row.backend, at: new Map() });
      const { at } = lines.get(name);
      const x = row[this.across] ?? "none";
      at.set(x, [...(at.get(x) ?? []), row[this.figure]]);
    }
    const byBackend = !by.length && [...lines.values()].every((line) => this.table.colours[line.backend]) && new Set([...lines.values()].map((line) => this.table.colours[line.backend])).size === lines.size;
    const drawn = [...lines].slice(0, MOST_LINES).map(([name, line], index) => ({
      name, ...look(this.table.series, index), ...(byBackend ? { colour: this.table.colours[line.backend] } : {}),
      points: [...line.at].map(([x, values]) => ({ x, y: median(values), low: Math.min(...values), high: Math.max(...values) })),
    }));
    const label = across?.unit ? `${this.across}, ${across.unit}` : this.across;
    const parts = [plot(this.shell, { caption: `${heading} by ${this.across}`, across: label, label: heading, lines: drawn, wide: this.width() })];
    if (lines.size > MOST_LINES) parts.push(this.shell.make("p", { class: "soft" }, `${lines.size - MOST_LINES} of ${lines.size} lines are not drawn: choose fewer by filters`));
    return parts;
  }
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
