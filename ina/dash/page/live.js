// View "Live": the running switch processes, each second.

let stop = () => {};

export function mount(element, shell) {
  const { make } = shell;
  element.append(make("h2", {}, "Live"));
  const list = make("div", { id: "switches" });
  element.append(list);
  stop = shell.poll(async () => {
    const reply = await shell.get("/api/live");
    list.replaceChildren(...(reply.switches.length ? reply.switches.map((one) => make("section", {},
      make("h3", {}, one.name), make("p", {}, one.error || `process ${one.ping.pid}, ${one.ping.program}`)))
      : [make("p", {}, "No switch process runs here.")]));
  }, 1);
}

export function unmount() {
  stop();
}
