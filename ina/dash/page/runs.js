// View "Runs".

export function mount(element, shell) {
  element.append(shell.make("h2", {}, "Runs"));
}

export function unmount() {}
