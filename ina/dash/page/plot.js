// Plots as inline SVG: lines over numbers or words, with bars from the least to the most, and a legend of texts.

const HIGH = 300;
const LEFT = 62;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 44;
const DASHES = [null, "7 4", "2 3", "9 3 2 3"];

// Formats a number with three digits.
export function number(value) {
  if (value === null || value === undefined) return "—";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return String(Number(value.toPrecision(4)));
}

// Round numbers from below `low` to above `high`.
function ticks(low, high, most) {
  const raw = (high - low || Math.abs(high) || 1) / most;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= raw);
  const first = Math.floor(low / step);
  const found = [];
  for (let index = first; found.length < 3 * most && (found.length < 2 || found.at(-1) < high); index += 1) found.push(Number((index * step).toPrecision(12)));
  return found;
}

// Returns a figure. `lines`: {name, colour, dash, points: [{x, y, low, high}]}; y null is a gap. x are numbers, or words, which stand
// side by side in the order in which they come. The vertical axis begins at 0 unless a value is below.
export function plot(shell, { caption, across, label, lines, wide = 640 }) {
  const { make, draw } = shell;
  const shown = lines.map((line) => ({ ...line, points: line.points.filter((point) => point.y !== null) }));
  const points = shown.flatMap((line) => line.points);
  if (!points.length) return make("figure", {}, make("figcaption", {}, caption), make("p", { class: "soft" }, "No value yet."));
  const words = points.some((point) => typeof point.x !== "number") ? [...new Set(points.map((point) => String(point.x)))] : null;
  const place = (x) => (words ? words.indexOf(String(x)) : x);
  const places = points.map((point) => place(point.x));
  let [least, most] = [Math.min(...places), Math.max(...places)];
  if (least === most || words) [least, most] = [least - 0.5, most + 0.5];
  const vertical = ticks(Math.min(0, ...points.map((point) => point.low ?? point.y)), Math.max(...points.map((point) => point.high ?? point.y)), 5);
  const [bottom, top] = [vertical[0], vertical.at(-1)];
  const column = (x) => LEFT + ((place(x) - least) / (most - least)) * (wide - LEFT - RIGHT);
  const row = (y) => HIGH - BOTTOM - ((y - bottom) / (top - bottom)) * (HIGH - TOP - BOTTOM);
  const text = (x, y, anchor, ...content) => draw("text", { x, y, "text-anchor": anchor, fill: "currentColor", "font-size": 12 }, ...content);
  const drawing = draw("svg", { viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": `${caption}: ${label} by ${across}, ${lines.map((line) => line.name).join("; ")}`, class: "plot" });
  for (const y of vertical) {
    drawing.append(draw("line", { x1: LEFT, x2: wide - RIGHT, y1: row(y), y2: row(y), stroke: "currentColor", "stroke-opacity": 0.2 }), text(LEFT - 6, row(y) + 4, "end", number(y)));
  }
  const distinct = [...new Set(places)].sort((a, b) => a - b);
  const marks = words ? words.map((word, index) => [index, word]) : (distinct.length <= 6 ? distinct : ticks(least, most, 5)).map((x) => [x, number(x)]);
  const room = Math.max(1, Math.ceil(marks.length / 8));
  marks.filter(([x], index) => x >= least && x <= most && index % room === 0).forEach(([x, word]) => {
    const at = LEFT + ((x - least) / (most - least)) * (wide - LEFT - RIGHT);
    drawing.append(text(at, HIGH - BOTTOM + 16, "middle", word.length > 14 ? `${word.slice(0, 13)}…` : word));
  });
  drawing.append(text((LEFT + wide - RIGHT) / 2, HIGH - 8, "middle", across));
  for (const line of shown) {
    const sorted = [...line.points].sort((a, b) => place(a.x) - place(b.x));
    if (!words) {
      const way = sorted.map((point) => `${column(point.x).toFixed(1)},${row(point.y).toFixed(1)}`).join(" ");
      drawing.append(draw("polyline", { points: way, fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash, "data-line": line.name }));
    }
    for (const point of sorted.length <= 60 ? sorted : []) {
      const x = column(point.x);
      if (point.low !== undefined && point.low !== point.high) {
        drawing.append(draw("line", { x1: x, x2: x, y1: row(point.low), y2: row(point.high), stroke: line.colour, "stroke-width": 1.5, class: "spread" }));
      }
      drawing.append(draw("circle", { cx: x, cy: row(point.y), r: 4, fill: line.colour, "data-value": point.y }, draw("title", {}, `${line.name}: ${number(point.y)} at ${number(point.x)}`)));
    }
  }
  const legend = make("ul", { class: "legend" }, lines.map((line) => make("li", {}, draw("svg", { width: 26, height: 10, "aria-hidden": "true" },
    draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: line.colour, "stroke-width": 3, "stroke-dasharray": line.dash })), ` ${line.name}`)));
  return make("figure", {}, make("figcaption", {}, caption), drawing, legend);
}

// Returns the look of the line with this number, in one of `series`.
export function look(series, index) {
  return { colour: series[index % series.length], dash: DASHES[Math.floor(index / series.length) % DASHES.length] };
}
