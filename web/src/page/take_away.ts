/** Take it away: the link, pictures, numbers, the classes file, and the commands that give the same numbers. */
import { type Setting, command, inWords, python, writeClasses } from "../engine/index.ts";
import { copyText, download, h } from "./dom.ts";
import { isLibraryName } from "./examples.ts";
import { csvOf, downloadPng, svgOf } from "./exports.ts";
import type { Scene } from "./scene.ts";
import { MOST_ADDRESS, type State } from "./state.ts";
import { explain } from "./tooltip.ts";

export interface TakeAwayEvents {
  scene(): Scene | null;
  shown(): number[];
  scale(): number;
  link(): string;
  refuse(sentence: string): void;
}

export class TakeAway {
  readonly element: HTMLElement;
  private readonly shell = h("pre", { tabindex: "0", id: "command", role: "region", "aria-label": "shell command" });
  private readonly lines = h("pre", { tabindex: "0", id: "python", role: "region", "aria-label": "Python lines" });
  private readonly note = h("p", { class: "soft" });
  private caption = "";
  private readonly said = h("p", { class: "soft", role: "status" });

  constructor(private readonly events: TakeAwayEvents) {
    this.element = h(
      "div",
      { class: "fold" },
      h(
        "div",
        { class: "chips" },
        explain(
          h("button", { type: "button", class: "primary", onclick: () => void this.copyLink() }, "Copy the link"),
          "The link contains the whole experiment: anyone who opens it sees what you see.",
        ),
        explain(
          h("button", { type: "button", onclick: () => this.picture("png") }, "PNG"),
          "The pictures, to paste into slides.",
        ),
        explain(
          h("button", { type: "button", onclick: () => this.picture("svg") }, "SVG"),
          "The pictures, to print at any size.",
        ),
        explain(
          h("button", { type: "button", onclick: () => this.csv() }, "CSV"),
          "Loss, entropy and attention at evenly spaced steps.",
        ),
        explain(
          h("button", { type: "button", onclick: () => this.classes() }, "Classes file"),
          "The data as a file that the library and this page read.",
        ),
      ),
      this.said,
      this.note,
      h("div", { class: "code" }, h("h3", {}, "In a shell"), this.copier(this.shell), this.shell),
      h("div", { class: "code" }, h("h3", {}, "In Python"), this.copier(this.lines), this.lines),
    );
  }

  show(state: State, setting: Setting): void {
    const file = state.data.kind === "preset" && isLibraryName(state.data.name) ? state.data.name : "classes.toml";
    this.caption = inWords(setting) + (state.changes.length ? `; changed from step ${state.changes[0].step} on` : "");
    this.shell.textContent = command(setting, state.steps, file);
    this.lines.textContent = python(setting, state.steps, file);
    this.note.textContent = [
      state.changes.length
        ? `Controls were changed at step ${state.changes[0].step}: the link replays that, while these commands train with the present controls from the start.`
        : setting.optimizer === "normalized_sgd"
          ? "These train the same setting. Normalized SGD amplifies rounding, so the numbers drift apart as it trains."
          : "These give the same numbers.",
      file === "classes.toml" ? "Save the classes file as classes.toml beside them." : "",
    ]
      .filter(Boolean)
      .join(" ");
  }

  private async copyLink(): Promise<void> {
    const link = this.events.link();
    if (link.length > MOST_ADDRESS) {
      this.events.refuse("These classes are too large for a link: save the classes file and send that.");
      return;
    }
    const embedded = !/^(file|https?):/.test(link);
    const copied = await copyText(embedded ? link.slice(link.indexOf("#")) : link);
    const words = embedded
      ? "The part after # is copied: append it to the address of the explorer’s page."
      : "The link is copied.";
    this.said.textContent = copied ? words : "Copy the link from the address bar.";
  }

  private copier(from: HTMLElement): HTMLElement {
    return h(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": `Copy the ${from.getAttribute("aria-label")}`,
        onclick: async () => {
          this.said.textContent = (await copyText(from.textContent ?? "")) ? "Copied." : "Select the text to copy it.";
        },
      },
      "Copy",
    );
  }

  private picture(format: "png" | "svg"): void {
    const scene = this.events.scene();
    if (!scene) return;
    const { caption } = this;
    if (format === "svg")
      download(
        "scansnap.svg",
        new Blob([svgOf(scene, this.events.shown(), this.events.scale(), caption)], { type: "image/svg+xml" }),
      );
    else
      downloadPng(scene, this.events.shown(), this.events.scale(), caption).catch((error: Error) =>
        this.events.refuse(error.message),
      );
  }

  private csv(): void {
    const scene = this.events.scene();
    if (scene) download("scansnap.csv", new Blob([csvOf(scene)], { type: "text/csv" }));
  }

  private classes(): void {
    const scene = this.events.scene();
    if (scene) download("classes.toml", new Blob([writeClasses(scene.classes)], { type: "application/toml" }));
  }
}
