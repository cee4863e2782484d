// View "Playground".

export function mount(element, shell) {
  element.append(shell.make("h2", {}, "Playground"));
}

export function unmount() {}
