/** What works anywhere on the page: keys, and files that are dropped. */

/** Call the action of a key, unless it is typed into a field or would press a button. */
export function listenForKeys(actions: Record<string, () => void>): void {
  document.addEventListener("keydown", (event) => {
    const target = event.target as Element;
    const typing = target.closest("input:not([type=range]):not([type=checkbox]), textarea, select");
    const pressing = event.key === " " && target.closest("button, summary, a, input, [role=application]");
    const action = actions[event.key.toLowerCase()];
    if (!action || typing || pressing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
}

/** Take a file that is dropped; while one hovers, the root has the class `dropping`. */
export function listenForFiles(root: HTMLElement, take: (file: File) => void): void {
  const hover = (over: boolean) => (event: DragEvent) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    root.classList.toggle("dropping", over);
  };
  document.addEventListener("dragover", hover(true));
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) root.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    hover(false)(event);
    const file = event.dataTransfer?.files[0];
    if (file) take(file);
  });
}
