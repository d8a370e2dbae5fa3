/** Play, pause, step, reset, speed, the step that is looked at, and how time is drawn. */
import { h } from "./dom.ts";
import { SPEEDS } from "./player.ts";
import { explain } from "./tooltip.ts";

export interface BarEvents {
  toggle(): void;
  step(): void;
  reset(): void;
  speed(index: number): void;
  /** Look at the record with this index. */
  look(record: number): void;
  logTime(on: boolean): void;
  end(text: string): void;
}

export interface BarState {
  playing: boolean;
  end: number;
  records: number;
  record: number;
  shownStep: number;
  speed: number;
  logTime: boolean;
}

export class PlayerBar {
  readonly element: HTMLElement;
  private readonly playButton = h("button", { type: "button", class: "play", id: "play" });
  private readonly scrub = h("input", {
    type: "range",
    id: "scrub",
    min: 0,
    step: 1,
    "aria-label": "Look at an earlier step",
  });
  private readonly speed = h("input", { type: "range", id: "speed", min: 0, max: SPEEDS.length - 1, step: 1 });
  private readonly pace = h("output", { for: "speed", class: "pace" });
  private readonly count = h("output", { class: "count", id: "count" });
  private readonly log = h("input", { type: "checkbox", id: "log-time" });
  private readonly end = h("input", {
    type: "text",
    inputmode: "numeric",
    id: "end",
    class: "number",
    autocomplete: "off",
  });
  private shown: Partial<BarState> = {};

  constructor(events: BarEvents) {
    this.playButton.addEventListener("click", () => events.toggle());
    this.scrub.addEventListener("input", () => events.look(Number(this.scrub.value)));
    this.speed.addEventListener("input", () => events.speed(Number(this.speed.value)));
    this.log.addEventListener("change", () => events.logTime(this.log.checked));
    this.end.addEventListener("change", () => events.end(this.end.value));
    this.element = h(
      "div",
      { class: "player", role: "group", "aria-label": "Player" },
      h(
        "div",
        { class: "buttons" },
        this.playButton,
        explain(
          h("button", { type: "button", id: "step", "aria-label": "Step", onclick: () => events.step() }, icon("step")),
          "One update (key S)",
        ),
        explain(
          h(
            "button",
            { type: "button", id: "reset", "aria-label": "Reset", onclick: () => events.reset() },
            icon("reset"),
          ),
          "Back to step 0 with the controls as they are (key R)",
        ),
      ),
      h(
        "div",
        { class: "timeline" },
        this.count,
        explain(h("span", { class: "scrub" }, this.scrub), "Drag to look back at an earlier step", this.scrub),
      ),
      explain(
        h("div", { class: "pair end" }, h("label", { for: "end" }, "until"), this.end),
        "The step at which playing stops. Press play again to go on.",
        this.end,
      ),
      explain(
        h("div", { class: "pair speed" }, h("label", { for: "speed" }, "Speed"), this.speed, this.pace),
        "Updates per second; in logarithmic time it grows as you go.",
        this.speed,
      ),
      explain(
        h("label", { class: "pair inline", for: "log-time" }, this.log, " log time"),
        "Draw time logarithmically, so that you see early and late steps together.",
        this.log,
      ),
    );
  }

  show(state: BarState): void {
    const { shown } = this;
    if (state.playing !== shown.playing) {
      this.playButton.replaceChildren(icon(state.playing ? "pause" : "play"), state.playing ? "Pause" : "Play");
      this.playButton.classList.toggle("on", state.playing);
    }
    if (state.shownStep !== shown.shownStep) this.count.textContent = `Step ${state.shownStep.toLocaleString("en-US")}`;
    if (state.records !== shown.records) this.scrub.max = String(Math.max(0, state.records - 1));
    if (document.activeElement !== this.scrub || state.playing) this.scrub.value = String(state.record);
    this.scrub.setAttribute("aria-valuetext", `step ${state.shownStep}`);
    if (state.speed !== shown.speed) {
      this.speed.value = String(state.speed);
      this.pace.textContent = `${SPEEDS[state.speed].toLocaleString("en-US")}/s`;
      this.speed.setAttribute("aria-valuetext", `${SPEEDS[state.speed]} updates per second`);
    }
    if (state.end !== shown.end && document.activeElement !== this.end) this.end.value = String(state.end);
    this.log.checked = state.logTime;
    this.shown = { ...state };
  }
}

const PATHS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  step: "M3 2.5v11l7-5.5zM11 3h2.5v10H11z",
  reset: "M8 3V0L3.5 4 8 8V5a3.5 3.5 0 1 1-3.5 3.5h-2A5.5 5.5 0 1 0 8 3z",
};

function icon(name: keyof typeof PATHS): SVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
