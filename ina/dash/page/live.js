// View "Live": the running switch processes, each second: their networks, jobs, and all that they count.

let stop = () => {};
let make;
let draw;

const HEAT = [0.02, 0.25, 0.5, 0.75]; // shares of a link's rate at which the next colour begins
const processes = new Map(); // by name

export function mount(element, shell) {
  ({ make, draw } = shell);
  processes.clear();
  const idle = make("input", { type: "checkbox", id: "idle" });
  const none = make("p", { class: "soft" });
  const list = make("div", {});
  element.append(make("h2", {}, "Live"),
    make("p", {}, make("label", {}, idle, " hide ports, links and jobs without traffic")), none, list);
  stop = shell.poll(async () => {
    const reply = await shell.get("/api/live");
    text(none, [reply.switches.length ? "" : "No switch process runs here (in this network namespace). ina run, torchrun with the back end ina, and ina net up start one; ina dash --switch NAME names another.",
      reply.unasked ? `${reply.unasked} more switch processes are not asked.` : ""].join(" ").trim());
    const names = new Set(reply.switches.map((one) => one.name));
    for (const [name, process] of processes) {
      if (!names.has(name)) {
        process.element.remove();
        processes.delete(name);
      }
    }
    for (const one of reply.switches) {
      if (!processes.has(one.name)) {
        const process = new Process(one.name);
        processes.set(one.name, process);
        list.append(process.element);
      }
      const process = processes.get(one.name);
      try {
        process.update(one, idle.checked);
      } catch (error) { // of this process alone: the others are still shown
        text(process.error, `what it replied cannot be shown (${error.message})`);
      }
    }
  }, 1);
}

export function unmount() {
  stop();
  processes.clear();
}

function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
  element.hidden = !words;
}

function number(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

function bits(value) {
  for (const [size, unit] of [[1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${Math.round(value)} b/s`;
}

function heat(link) {
  return link.state === "up" ? HEAT.filter((share) => link.share >= share).length : 0;
}

// Words about a link's load and state, for its row and for who points at it.
function words(link) {
  const of = link.rate ? ` (${(100 * link.share).toFixed(0)} % of ${bits(link.rate)})` : "";
  const state = link.state === "up" ? "" : `, ${link.state}`;
  return `${link.name}: ${bits(link.up)} up, ${bits(link.down)} down${of}, ${number(link.drops)} drops/s${state}`;
}

// A table that is written anew only when its rows have changed. Columns that end with > are aligned to the right.
class Table {
  constructor(title, columns) {
    this.columns = columns;
    this.body = make("tbody", {});
    this.table = make("table", {}, make("thead", {}, make("tr", {}, columns.map((column) =>
      make("th", { scope: "col", class: column.endsWith(">") ? "number" : null }, column.replace(/>$/, ""))))), this.body);
    this.element = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, this.table);
    this.before = "";
  }

  update(rows) {
    const now = JSON.stringify(rows);
    if (now === this.before) return;
    this.before = now;
    this.body.replaceChildren(...rows.map((row) => make("tr", {}, row.map((cell, i) =>
      make("td", { class: this.columns[i].endsWith(">") ? "number" : null }, typeof cell === "number" ? number(cell) : cell ?? "")))));
  }
}

// A part that opens and closes, and is written only while it is open.
class Part {
  constructor(title, open, columns) {
    this.title = title;
    this.summary = make("summary", {}, title);
    this.element = make("details", { open }, this.summary);
    this.rows = [];
    if (columns) {
      this.table = new Table(title, columns);
      this.element.append(this.table.element);
      this.element.addEventListener("toggle", () => this.write());
    }
  }

  update(rows) {
    this.rows = rows;
    text(this.summary, `${this.title} (${rows.length})`);
    this.write();
  }

  write() {
    if (this.element.open) this.table.update(this.rows);
  }
}

class Process {
  constructor(name) {
    this.error = make("p", { class: "bad", role: "status", hidden: true });
    this.about = make("p", { class: "soft" });
    this.news = make("ul", { class: "news" });
    this.choice = make("select", { onchange: () => this.highlight() });
    this.chooser = make("p", { hidden: true }, make("label", {}, "Tree of job ", this.choice));
    this.drawing = make("div", { class: "scroll drawing", tabindex: 0, role: "group", "aria-label": `drawing of ${name}` });
    this.legend = legend();
    this.jobs = new Part("Jobs", true, ["job", "number>", "workers>", "slots>", "root", "over", "first slot", "owner", "run by", "check"]);
    this.members = new Part("Workers", false, ["job", "worker>", "host", "process>", "port>", "address"]);
    this.switches = new Part("Switches", true, ["switch", "state", "slots>", "free>", "jobs"]);
    this.links = new Part("Links and ports", true, ["name", "state", "up>", "down>", "share>", "packets/s>", "drops/s>", "rate>"]);
    this.drops = new Part("Drops by reason", false, ["where", "reason", "packets>", "per second>"]);
    this.cells = new Part("Counters of the program", false, ["switch", "counter", "cell", "packets>", "bytes>", "packets/s>"]);
    this.tables = make("div", {});
    this.others = new Map();
    this.element = make("section", { class: "process" }, make("h3", {}, name), this.error, this.about, this.news, this.chooser,
      this.drawing, this.legend, this.switches.element, this.jobs.element, this.members.element, this.links.element,
      this.drops.element, this.cells.element, this.tables);
    this.shape = "";
    this.paths = [];
    this.nodes = [];
  }

  update(one, hideIdle) {
    text(this.error, one.error);
    for (const element of [this.drawing, this.legend, ...[this.switches, this.jobs, this.members, this.links, this.drops, this.cells]
      .map((part) => part.element)]) element.hidden = !one.about;
    this.element.classList.toggle("old", Boolean(one.error));
    if (!one.about) return;
    const about = one.about;
    text(this.about, `process ${about.pid}, ${about.program}, ${about.values} values per packet, ${number(about.free_slots)} of ${number(about.slots)} slots free`
      + (about.server ? `, parameter server: process ${about.server}` : "") + (one.topology ? `, network ${one.topology}` : ""));
    const news = [...one.incidents.filter((each) => !each.over).map((each) => each.words), ...one.silent,
      ...one.incidents.filter((each) => each.over).map((each) => each.words)];
    if (JSON.stringify(news) !== this.told) {
      this.told = JSON.stringify(news);
      this.news.replaceChildren(...news.map((each) => make("li", {}, each)));
      this.news.hidden = !news.length;
    }
    this.draw(one);
    this.choose(one.jobs);
    const busy = new Set(one.links.filter((link) => link.packets > 0).map((link) => link.name));
    const idle = (links) => hideIdle && !links.some((link) => busy.has(link));
    this.switches.update(one.switches.map((each) => [each.name, each.state, each.slots, each.free_slots, each.jobs.join(", ")]));
    this.jobs.update(one.jobs.filter((job) => !idle(job.links)).map((job) => [job.name, job.number, `${job.here}/${job.workers}`, job.slots, job.root,
      job.others.join(", "), Object.entries(job.bases).map(([at, base]) => `${at}: ${base}`).join(", "), job.owner, job.run_by, job.check]));
    this.members.update(one.members.map((each) => [each.job, each.worker, each.host, each.pid === null ? null : String(each.pid), each.port, each.ip]));
    this.links.update(one.links.filter((link) => !idle([link.name])).map((link) => [link.name, link.known ? link.state : "not counted",
      bits(link.up), bits(link.down), `${(100 * link.share).toFixed(0)} %${link.rate ? "" : " of the highest"}`,
      number(link.packets), number(link.drops), link.rate ? bits(link.rate) : "unknown"]));
    this.drops.update(one.drops);
    this.cells.update(one.counters);
    this.other(one.tables);
  }

  other(tables) {
    const kinds = new Set(tables.map((table) => JSON.stringify([table.kind, table.columns])));
    for (const [key, part] of this.others) {
      if (!kinds.has(key)) {
        part.element.remove();
        this.others.delete(key);
      }
    }
    for (const table of tables) {
      const key = JSON.stringify([table.kind, table.columns]);
      if (!this.others.has(key)) {
        const part = new Part(table.columns.length ? `Counters by ${table.kind}` : table.kind, false,
          [table.kind, ...table.columns.map((column) => `${column}>`)]);
        this.others.set(key, part);
        this.tables.append(part.element);
      }
      this.others.get(key).update(table.rows);
    }
  }

  choose(jobs) {
    const names = jobs.map((job) => job.name);
    this.all = jobs;
    this.chooser.hidden = !names.length;
    if (JSON.stringify(names) !== this.names) {
      this.names = JSON.stringify(names);
      const before = this.choice.value;
      this.choice.replaceChildren(make("option", { value: "" }, "none"), ...names.map((name) => make("option", { value: `job ${name}` }, name)));
      this.choice.value = names.includes(before.slice(4)) ? before : "";
    }
    this.highlight();
  }

  // Marks the links and nodes of the chosen job's tree.
  highlight() {
    const job = this.all.find((each) => `job ${each.name}` === this.choice.value);
    const links = new Set(job?.links);
    const nodes = new Set(job?.nodes);
    for (const path of this.paths) path.halo.classList.toggle("tree", links.has(path.name));
    for (const node of this.nodes) {
      node.shape.classList.toggle("tree", nodes.has(node.name));
      node.shape.classList.toggle("root", job !== undefined && node.name === job.root);
    }
  }

  draw(one) {
    const shape = JSON.stringify(one.drawing);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(one);
    }
    let down = 0;
    one.links.forEach((link, i) => {
      const path = this.paths[i];
      if (!path) return;
      const failed = link.state !== "up";
      down += failed;
      path.line.setAttribute("class", `link heat${heat(link)} ${failed ? "failed" : ""}`);
      text(path.title, words(link));
      text(path.mark, failed ? link.state : "");
      path.mark.style.display = failed ? "" : "none";
    });
    this.picture.setAttribute("aria-label", `${one.links.length} links or ports, ${down} of them down or slow; the table of links and ports has all`);
  }

  build(one) {
    const { width, height, nodes, ends } = one.drawing;
    const halos = draw("g", {});
    const lines = draw("g", {});
    const marks = draw("g", {});
    this.paths = ends.map(([a, b], i) => {
      const [, x1, y1] = nodes[a];
      const [, x2, y2] = nodes[b];
      const at = { x1, y1, x2, y2 };
      const title = draw("title", {});
      const path = { name: one.links[i].name, halo: draw("line", { ...at, class: "halo" }), line: draw("line", { ...at }, title), title,
        mark: draw("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2, class: "mark" }) };
      halos.append(path.halo);
      lines.append(path.line);
      marks.append(path.mark);
      return path;
    });
    const shapes = draw("g", {});
    this.nodes = nodes.map(([name, x, y, host]) => {
      const form = host ? draw("circle", { cx: x, cy: y, r: 13 }) : draw("rect", { x: x - 17, y: y - 11, width: 34, height: 22, rx: 4 });
      const short = name.length > 8 ? `${name.slice(0, 7)}…` : name;
      form.append(draw("title", {}, name));
      shapes.append(form, draw("text", { x, y }, short.replace(/^port /, "")));
      return { name, shape: form };
    });
    this.picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" }, halos, lines, shapes, marks);
    this.drawing.replaceChildren(this.picture);
  }
}

function legend() {
  const sample = (kind, words) => make("span", {}, draw("svg", { width: 34, height: 12, "aria-hidden": "true" },
    draw("line", { x1: 1, y1: 6, x2: 33, y2: 6, class: kind })), ` ${words}`);
  const shares = HEAT.map((share) => `${100 * share} %`);
  return make("p", { class: "legend soft" }, "load of a link's rate (else of the highest): ",
    sample("link heat0", `below ${shares[0]}`), ...shares.map((share, i) => sample(`link heat${i + 1}`, `from ${share}`)),
    sample("link failed", "down or slow, with the word"), sample("halo tree", "the job's tree"));
}
