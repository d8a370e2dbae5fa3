/** The present phase, in words. */
import { isDistinct, type Phase, type Setting } from "../engine/index.ts";
import { h } from "./dom.ts";

const WHY: Record<Phase["name"], string> = {
  start: "At first each token gets attention in proportion to its frequency (black ticks).",
  scanning: "The decoder learns which tokens predict the next one. Attention leaves those that do not.",
  snapping: "The decoder’s errors shrink, and with them the push on attention.",
  snapped: "The decoder is nearly always right, so hardly any gradient is left to move attention.",
  slowed: "Each update moves attention a little, and that adds up: it creeps on, or slides back.",
  diverged: "The rates are too large for this setting: make them smaller and press reset.",
};

/** Why a run is in its phase.  The reasons of SGD are not those of rules that ignore the gradient's size. */
function reason(name: Phase["name"], { classes, optimizer }: Setting): string {
  const stops = name === "snapping" || name === "snapped";
  if (stops && !isDistinct(classes).some(Boolean)) {
    return "No token points to a single answer, so attention has little to choose from.";
  }
  if (stops && optimizer !== "sgd") {
    return "Attention hardly moves any more. This optimizer ignores how large the gradient is.";
  }
  return WHY[name];
}

/** The phase as the beginning of a line. */
export function phaseWords({ words }: Phase): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export class PhaseLine {
  private readonly name = h("strong", { id: "phase" });
  private readonly why = h("span", { class: "soft" });
  readonly element = h("div", { class: "phase" }, this.name, this.why);

  /** `announce` is called with a phase that begins: a screen reader need not hear every step of it. */
  constructor(private readonly announce: (words: string) => void) {}

  show(phase: Phase, setting: Setting): void {
    const words = phaseWords(phase), why = reason(phase.name, setting);
    if (this.name.textContent !== words) this.name.textContent = words;
    if (this.why.textContent !== why) this.why.textContent = why;
    if (this.element.dataset.phase === phase.name) return;
    this.element.dataset.phase = phase.name;
    this.announce(words);
  }
}
