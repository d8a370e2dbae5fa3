/** The present phase, in words. */
import type { Phase } from "../engine/index.ts";
import { h } from "./dom.ts";

const WHY: Record<Phase["name"], string> = {
  start: "At first each token gets attention in proportion to its frequency (black ticks).",
  scanning: "The decoder learns which tokens predict the next one. Attention leaves those that do not.",
  snapping: "The decoder’s errors shrink, and with them the push on attention.",
  snapped: "The decoder is nearly always right, so hardly any gradient is left to move attention.",
  slowed: "Each update moves attention a little, and that adds up: it creeps on, or slides back.",
  diverged: "The rates are too large for this setting: make them smaller and press reset.",
};

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

  show(phase: Phase): void {
    const words = phaseWords(phase);
    if (this.name.textContent !== words) this.name.textContent = words;
    if (this.element.dataset.phase === phase.name) return;
    this.element.dataset.phase = phase.name;
    this.why.textContent = WHY[phase.name];
    this.announce(words);
  }
}
