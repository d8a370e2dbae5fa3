/** A menu of the paper's figures, and the words that stand over the one that was opened. */
import { fill, h } from "./dom.ts";
import { FIGURES, STATEMENTS } from "./figures.ts";
import type { State } from "./state.ts";

export class FigureMenu {
  readonly caption = h("p", { id: "caption", class: "soft", hidden: true });
  readonly element = h(
    "select",
    { id: "figure", "aria-label": "Open a figure of the paper" },
    h("option", { value: "" }, "Figures of the paper…"),
  );

  constructor(open: (state: State) => void) {
    for (const group of new Set(FIGURES.map((figure) => figure.group))) {
      const options = FIGURES.map(
        (figure, i) => figure.group === group && h("option", { value: i }, `${number(group)}: ${figure.label}`),
      );
      this.element.append(h("optgroup", { label: group }, ...options));
    }
    this.element.addEventListener("change", () => {
      const chosen = FIGURES[Number(this.element.value)];
      this.element.value = "";
      open(chosen.state);
      fill(this.caption, h("strong", {}, `${number(chosen.group)}, ${chosen.label}. `), STATEMENTS[chosen.group]);
      this.caption.hidden = false;
    });
  }
}

/** "Figure 4" of "Figure 4: Syn-Small, SGD". */
function number(group: string): string {
  return group.split(":")[0];
}
