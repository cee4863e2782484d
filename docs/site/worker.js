// The search of pages that are opened as files: browsers start no worker from a file: address, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.worker = this;
      frame.srcdoc = `
        <script>postMessage = (data) => frameElement.worker.dispatchEvent(new parent.MessageEvent("message", { data }));</script>
        <script src="${new URL(address, location.href)}"></script>`;
      this.window = new Promise((ready) => (frame.onload = () => ready(frame.contentWindow)));
      document.body.append(frame);
    }
    postMessage(data) {
      this.window.then((window) => window.dispatchEvent(new window.MessageEvent("message", { data })));
    }
  };
}
