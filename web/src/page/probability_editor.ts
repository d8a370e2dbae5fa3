/** The probabilities P(l|n) of a class as bars that can be dragged, or moved with the arrow keys. */
import type { Classes } from "../engine/index.ts";
import { h, fill } from "./dom.ts";
import type { ClassRows } from "./history.ts";

const LEAST = 0.001;
const MOST = 0.98;

/** Classes in which a token has another probability in a class, the others sharing the rest as before. */
export function withProbability(classes: Classes, index: number, token: number, prob: number): Classes {
  const row = classes.probs[index];
  const value = Math.min(MOST, Math.max(LEAST, prob));
  const rest = (1 - value) / (1 - row[token]);
  const changed = row.map((p, l) => (l === token ? value : p * rest));
  return { ...classes, probs: classes.probs.map((each, n) => (n === index ? changed : each)) };
}

export class ProbabilityEditor {
  readonly element = h("div", { class: "probabilities", role: "group", "aria-label": "Probabilities of the tokens" });
  private readonly bars = h("div", { class: "bars" });
  private readonly alike = h("input", { type: "checkbox", id: "alike", checked: true });
  private classes: Classes | null = null;
  private rows: ClassRows[] = [];
  private focus = 0;

  constructor(private readonly changed: (classes: Classes) => void) {
    this.element.append(this.bars, h("label", { class: "inline", for: "alike" }, this.alike, " every class alike"));
  }

  show(classes: Classes, rows: ClassRows[], focus: number): void {
    if (classes === this.classes && focus === this.focus) return;
    [this.classes, this.rows, this.focus] = [classes, rows, focus];
    this.render();
  }

  private render(focused?: number): void {
    const rows = this.rows[this.focus].rows;
    const top = this.top();
    fill(
      this.bars,
      ...rows.map((row, i) => {
        const bar = h("div", {
          class: `bar ${row.kind}`,
          role: "slider",
          tabindex: 0,
          "aria-valuemin": 0,
          "aria-valuemax": 1,
          "aria-orientation": "vertical",
          "aria-label": `probability of ${row.kind} token ${row.name}`,
        });
        this.paint(bar, row.prob, top);
        bar.append(h("span", { class: "stem" }), h("span", { class: "name" }, row.name));
        bar.addEventListener("pointerdown", (event) => this.drag(event, bar, i, top));
        bar.addEventListener("keydown", (event) => this.key(event, i));
        return bar;
      }),
    );
    if (focused !== undefined) (this.bars.children[focused] as HTMLElement | undefined)?.focus();
  }

  private top(): number {
    return Math.min(1, Math.max(...this.rows[this.focus].rows.map((row) => row.prob)) * 1.6);
  }

  private paint(bar: HTMLElement, prob: number, top: number): void {
    bar.style.setProperty("--share", String(Math.min(1, prob / top)));
    bar.setAttribute("aria-valuenow", prob.toFixed(3));
    bar.setAttribute("aria-valuetext", prob.toFixed(3));
    bar.title = prob.toFixed(3);
  }

  private drag(event: PointerEvent, bar: HTMLElement, i: number, top: number): void {
    event.preventDefault();
    bar.focus();
    bar.setPointerCapture(event.pointerId);
    const place = bar.getBoundingClientRect();
    const prob = (at: PointerEvent): number =>
      Math.min(MOST, Math.max(LEAST, ((place.bottom - 16 - at.clientY) / (place.height - 16)) * top));
    const move = (at: PointerEvent): void => this.paint(bar, prob(at), top);
    const end = (at: PointerEvent): void => {
      bar.removeEventListener("pointermove", move);
      this.apply(i, prob(at));
    };
    move(event);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", end, { once: true });
  }

  private key(event: KeyboardEvent, i: number): void {
    const factor = { ArrowUp: 1.1, ArrowRight: 1.1, ArrowDown: 1 / 1.1, ArrowLeft: 1 / 1.1, PageUp: 2, PageDown: 0.5 }[
      event.key
    ];
    if (!factor) return;
    event.preventDefault();
    this.apply(i, this.rows[this.focus].rows[i].prob * factor);
  }

  /** Change the token of this row, and of the same row in the other classes where they are to be alike. */
  private apply(i: number, prob: number): void {
    let classes = this.classes!;
    const size = this.rows[this.focus].rows.length;
    const alike = this.alike.checked && this.rows.every((each) => each.rows.length === size);
    for (const { index, rows } of alike ? this.rows : [this.rows[this.focus]]) {
      classes = withProbability(classes, index, rows[i].token, prob);
    }
    const hadFocus = this.bars.contains(document.activeElement);
    this.changed(classes);
    if (hadFocus) (this.bars.children[i] as HTMLElement | undefined)?.focus();
  }
}
