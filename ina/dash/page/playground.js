// View "Playground": a program, its errors, its parser's graph, and the way of packets through it.

const PATIENCE = 60000; // milliseconds: a check has 45 s, and waits up to 10 s for others
let run = ""; // this page's name for its checks: the next one ends the last one
let flight = null;
const DARK = "@media(prefers-color-scheme:dark)"; // of the graphs (ina/p4/tools/parser_graph.py)

// Draws a graph in the page's theme: its drawing follows the system's, which the page does unless one was chosen.
function paint(graph) {
  const { theme } = document.documentElement.dataset;
  const media = { light: "@media not all", dark: "@media all" }[theme] ?? DARK;
  graph.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(graph.dataset.graph.replace(DARK, media))}`;
}

const themes = new MutationObserver(() => document.querySelectorAll("img[data-graph]").forEach(paint));

export function mount(element, shell) {
  themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const { make } = shell;
  run = Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(16)).join("");
  const text = area("Program", 20, changed);
  const defines = make("input", { id: "pg-defines", placeholder: "VALUES=32", oninput: changed });
  const entries = area("Entries, as lines of STF", 4);
  const packets = area("Packets, a line of hexadecimal digits each", 4);
  const port = make("input", { id: "pg-port", type: "number", min: 0, max: 511, value: 0 });
  const examples = make("select", { id: "pg-examples", onchange: choose }, make("option", { value: "" }, "(none)"));
  const status = make("p", { role: "status", class: "soft" });
  const sent = make("span", { role: "status", class: "soft" }); // beside the button: the other one is out of sight there
  const diagnostics = make("ul", { "aria-label": "Errors and warnings" });
  const result = make("div");
  const way = make("div");
  const builder = make("div");
  const buttons = [
    make("button", { type: "button", onclick: () => ask({}, status, explained) }, "Check"),
    make("button", { type: "button", onclick: send }, "Send packets"),
  ];
  element.append(
    make("h2", {}, "Playground"),
    make("p", { class: "filters" }, make("label", {}, "Example: ", examples), make("label", {}, "Macros: ", defines)),
    label(text), text, make("p", {}, buttons[0]), status, diagnostics, result,
    make("h3", {}, "A packet's way"), label(entries), entries, builder, label(packets), packets,
    make("p", {}, make("label", { for: "pg-port" }, "Port that the packets come in at: "), port, " ", buttons[1], " ", sent), way);
  build([]);
  shell.get("/api/playground/programs").then(({ programs }) => {
    examples.append(...programs.map((name) => make("option", { value: name }, name)));
  }, (error) => shell.notify(error.message));

  function area(name, rows, oninput = null) {
    const id = `pg-${name.split(/\W/)[0].toLowerCase()}`;
    const box = make("textarea", { id, rows, spellcheck: "false", class: "code", "data-name": name });
    box.oninput = oninput;
    return box;
  }
  function label(box) {
    return make("label", { for: box.id }, box.dataset.name);
  }
  // Takes away all that was said of the program as it was before.
  function changed() {
    flight?.abort();
    flight = flight && new AbortController(); // the server may still be at work, which ends with the page
    status.textContent = sent.textContent = "";
    for (const part of [diagnostics, result, way]) part.replaceChildren();
    build([]);
  }
  async function choose() {
    const name = examples.value;
    changed();
    if (!name) return;
    try {
      const example = await shell.get(`/api/playground/programs/${name}`);
      if (examples.value !== name) return;
      text.value = example.text;
      changed();
      shell.notify("");
    } catch (error) {
      shell.notify(error.message);
    }
  }
  function send() {
    way.replaceChildren();
    ask({ packets: packets.value, port: Number(port.value), entries: entries.value }, sent, traced);
  }
  function verdict(reply, place) {
    if (reply.refused) return reply.refused;
    const first = reply.diagnostics.find((one) => one.severity === "error");
    if (!first) return "no errors";
    return `the program has errors, listed below${place === status ? "" : " Check"}; the first: ${first.line ? `line ${first.line}` : first.place}: ${first.message}`;
  }
  async function ask(more, place, show) {
    flight?.abort();
    const mine = flight = new AbortController();
    const timer = setTimeout(() => mine.abort(), PATIENCE);
    status.textContent = sent.textContent = "";
    place.textContent = "at work ...";
    try {
      const answer = await fetch("/api/playground/check", { method: "POST", credentials: "same-origin", signal: mine.signal,
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ run, text: text.value, defines: defines.value, like: examples.value, ...more }) });
      const reply = await answer.json();
      if (flight !== mine) return;
      if (!answer.ok) throw new Error(reply.error);
      list(reply.diagnostics);
      place.textContent = verdict(reply, place);
      show(reply);
    } catch (error) {
      if (flight === mine) place.textContent = error.name === "AbortError" ? "no answer: try again" : error.message;
    }
    clearTimeout(timer);
  }
  function list(rows) {
    diagnostics.replaceChildren(...rows.map((one) => {
      const words = `${one.severity}: ${one.message}`;
      const place = one.line ? make("button", { type: "button", onclick: () => go(one.line, one.column) }, `${one.line}:${one.column}`) : one.place;
      return make("li", { class: one.severity === "error" ? "bad" : "soft" }, place, ` ${words}`, ...one.notes.map((note) => make("div", { class: "soft" }, `note: ${note}`)));
    }));
  }
  function go(line, column) {
    const before = text.value.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    text.focus();
    text.setSelectionRange(before + column - 1, before + column);
    text.scrollTop = (text.scrollHeight / text.value.split("\n").length) * Math.max(0, line - 5);
  }
  function lines(name, rows) {
    return make("pre", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, rows.join("\n"));
  }
  function explained(reply) {
    result.replaceChildren();
    build(reply.headers ?? []);
    if (!reply.graph) return;
    const graph = make("img", { "data-graph": reply.graph, alt: "The parser's states and transitions; the text below has them, too" });
    paint(graph);
    result.append(make("h3", {}, "Parser"), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parser graph" },
      graph),
    make("h3", {}, "Headers, states, tables and memory"), lines("Explanation", reply.explanation));
  }
  function traced(reply) {
    way.replaceChildren(...(reply.trace ? [lines("The way of the packets", reply.trace)] : []));
  }
  function build(headers) {
    const chosen = make("select", { id: "pg-header", onchange: fields }, headers.map((one, i) => make("option", { value: i }, one.name)));
    const inputs = make("div", { class: "fields" });
    builder.replaceChildren(...(headers.length ? [] : [make("p", { class: "soft" }, "Check lists the headers here, to put a packet together from their fields.")]));
    if (!headers.length) return;
    builder.append(make("label", { for: "pg-header" }, "Header: "), chosen, inputs,
      make("button", { type: "button", onclick: append }, "Append to the last packet"));
    fields();
    function fields() {
      inputs.replaceChildren(...headers[chosen.value].fields.map((one) => make("label", {}, `${one.name} (${one.bits} bits) `,
        make("input", { "data-bits": one.bits, value: "0", size: 12 }))));
    }
    function append() {
      let value = 0n;
      let bits = 0;
      try {
        for (const input of inputs.querySelectorAll("input")) {
          const size = Number(input.dataset.bits);
          const number = BigInt(input.value.trim() || "0");
          if (number < 0n || number >> BigInt(size)) throw new RangeError(`${input.value}: expected a number of ${size} bits`);
          value = (value << BigInt(size)) | number;
          bits += size;
        }
      } catch (error) {
        sent.textContent = error instanceof SyntaxError ? "a field: expected a number, such as 17 or 0x11" : error.message;
        return;
      }
      packets.value += value.toString(16).padStart(bits / 4, "0");
    }
  }
}

export function unmount() {
  themes.disconnect();
  flight?.abort();
  flight = null;
  fetch("/api/playground/cancel", { method: "POST", keepalive: true, credentials: "same-origin", body: JSON.stringify({ run }) }).catch(() => {});
}

addEventListener("pagehide", () => { if (flight) unmount(); });
