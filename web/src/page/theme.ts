/** Dark or light: as the system has it, until someone chooses. */

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = false;

/** Follow the system; `changed` is called when the colors are others. */
export function followTheme(changed: () => void): void {
  const follow = (): void => {
    if (!chosen) show(dark.matches ? "dark" : "light");
    changed();
  };
  dark.addEventListener("change", follow);
  follow();
}

/** Choose the other. */
export function switchTheme(): void {
  chosen = true;
  show(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

function show(theme: "dark" | "light"): void {
  document.documentElement.dataset.theme = theme;
}
