// The shell of the page: tabs, theme, and what the views share. A view is a module that exports mount(element, shell) and unmount().

const VIEWS = { live: "Live", runs: "Runs", playground: "Playground" };
const THEMES = ["auto", "light", "dark"];
const SVG = "http://www.w3.org/2000/svg";

// Makes an element. Texts become text nodes: names come from other users. Listeners: {onclick: function}.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// Makes an element of a drawing.
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(path, options) {
  let answer;
  let text;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(15000), credentials: "same-origin" });
    text = await answer.text();
  } catch (error) {
    throw new Error(`ina dash does not answer (${error.message})`);
  }
  let reply;
  try {
    reply = JSON.parse(text);
  } catch {
    throw new Error(`${path}: status ${answer.status} without JSON`);
  }
  if (!answer.ok) throw new Error(reply.error ?? `${path}: status ${answer.status}`);
  return reply;
}

const get = (path) => ask(path, {});
const post = (path, body) => ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// Shows a message above the view; "": none.
function notify(words) {
  const notice = document.getElementById("notice");
  if (notice.textContent !== words) notice.textContent = words;
  notice.hidden = !words;
}

// Calls look() now and every few seconds while the page is seen, one at a time; errors are shown. Returns what ends it.
function poll(look, seconds) {
  let timer = 0;
  let over = false;
  let looking = false;
  const round = async () => {
    clearTimeout(timer);
    if (over || looking || document.hidden) return;
    looking = true;
    try {
      await look();
      if (!over) notify("");
    } catch (error) {
      if (!over) notify(error.message);
    }
    looking = false;
    if (!over) timer = setTimeout(round, seconds * 1000);
  };
  document.addEventListener("visibilitychange", round);
  round();
  return () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", round);
  };
}

export const shell = { get, post, poll, notify, make, draw };

// ---- tabs

let mounted = null;
let turn = 0;

async function show(name) {
  const mine = ++turn;
  mounted?.unmount();
  mounted = null;
  notify("");
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.view === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  const view = document.getElementById("view");
  view.replaceChildren();
  view.setAttribute("aria-labelledby", `tab-${name}`);
  document.title = `ina: ${VIEWS[name]}`;
  try {
    const module = await import(`/${name}.js`);
    if (mine !== turn) return;
    mounted = module;
    module.mount(view, shell);
  } catch (error) {
    if (mine === turn) notify(`the view ${VIEWS[name]} cannot be shown: ${error.message}`);
  }
}

function chosen() {
  const name = location.hash.slice(1).split("/")[0];
  return Object.hasOwn(VIEWS, name) ? name : "live";
}

const tabs = document.getElementById("tabs");
for (const [name, title] of Object.entries(VIEWS)) {
  tabs.append(make("button", { type: "button", role: "tab", id: `tab-${name}`, "data-view": name, "aria-controls": "view",
    onclick: () => { location.hash = name; } }, title));
}
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = Object.keys(VIEWS);
  const next = names[(names.indexOf(chosen()) + step + names.length) % names.length];
  location.hash = next;
  document.getElementById(`tab-${next}`).focus();
  event.preventDefault();
});
let last = "";
addEventListener("hashchange", () => {
  if (chosen() !== last) show(last = chosen());
});

// ---- theme

const button = document.getElementById("theme");
let theme = localStorage.getItem("ina-theme");
if (!THEMES.includes(theme)) theme = "auto";
function paint() {
  document.documentElement.dataset.theme = theme;
  button.textContent = `Theme: ${theme}`;
}
button.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("ina-theme", theme);
  paint();
});
paint();
show(last = chosen());
