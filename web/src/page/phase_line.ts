/** The present phase, in words. */
import { isDistinct, type Phase, type Setting } from "../engine/index.ts";
import { h } from "./dom.ts";

const WHY: Record<Phase["name"], string> = {
  start: "At first each token gets attention in proportion to its frequency (black ticks).",
  scanning: "The decoder learns which tokens predict the next one. Attention leaves those that do not.",
  snapping: "The decoder’s errors shrink, and with them the push on attention.",
  snapped: "The decoder’s errors have shrunk, and with them the gradient that moves attention.",
  slowed: "Each update moves attention a little, and that adds up: it creeps on, or slides back.",
  diverged: "The rates are too large for this setting: make them smaller and press reset.",
};

/** With momentum, attention slows when its velocity does, which can outlast the gradient. */
const WITH_MOMENTUM: Partial<Record<Phase["name"], string>> = {
  scanning: "The decoder learns which tokens predict the next one. Attention leaves those that do not, and momentum adds to its speed.",
  snapping: "Momentum can keep attention moving after the gradient has vanished.",
  snapped: "Momentum can keep attention moving after the gradient has vanished. Set it to 0 to see how much of this is momentum.",
};

/** Why a run is in its phase.  The reasons of SGD are not those of rules that ignore the gradient's size. */
export function reason(name: Phase["name"], { classes, optimizer, momentum }: Setting): string {
  const stops = name === "snapping" || name === "snapped";
  if (stops && !isDistinct(classes).some(Boolean)) {
    return "No token points to a single answer, so attention has little to choose from.";
  }
  if (stops && optimizer !== "sgd") {
    return "Attention hardly moves any more. This optimizer ignores how large the gradient is.";
  }
  return (momentum > 0 && WITH_MOMENTUM[name]) || WHY[name];
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
