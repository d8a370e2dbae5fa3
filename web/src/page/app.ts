/** The page: an experiment, what shows it and what changes it. */
import model from "../../../docs/images/model.svg";
import { AddressBar, inHead } from "./address_bar.ts";
import { ClassPanels } from "./class_panels.ts";
import { type Control, control, ratioControl } from "./controls.ts";
import { CurvePanels } from "./curve_panels.ts";
import { DataPanel } from "./data_panel.ts";
import { fill, h, withSubscripts } from "./dom.ts";
import { Experiment } from "./experiment.ts";
import { FigureMenu } from "./figure_menu.ts";
import { numbersTable } from "./numbers_table.ts";
import type { OptionKey, Options } from "./options.ts";
import { type Palette, readPalette } from "./palette.ts";
import { PhaseLine } from "./phase_line.ts";
import { PhaseMap } from "./phase_map.ts";
import { measureText } from "./picture.ts";
import { PlayerBar } from "./player_bar.ts";
import type { Scene } from "./scene.ts";
import { listenForFiles, listenForKeys } from "./shortcuts.ts";
import { type Data, type Forms, type State, readAddress } from "./state.ts";
import { TakeAway } from "./take_away.ts";
import { followTheme, switchTheme } from "./theme.ts";
import { explain, showTips } from "./tooltip.ts";
import { Tour } from "./tour.ts";

const RATES: readonly OptionKey[] = ["lrY", "lrZ"];
const BESIDE_RATES: readonly OptionKey[] = ["momentum"];
const TRAINING: readonly OptionKey[] = ["decoderGradient", "optimizer"];
const DETAILS: readonly OptionKey[] = ["batchSize", "seqLen", "seed", "init", "residual", "normalization"];
const FORMS: readonly (readonly [Forms, string])[] = [
  ["none", "off"],
  ["published", "as published"],
  ["exact", "exact form"],
  ["both", "both"],
];
/** Pictures are described in words this often while they move. */
const DESCRIBE_MS = 2000;

export class App {
  private palette: Palette;
  private drawing = false;
  private described = 0;

  private readonly experiment: Experiment;
  private readonly address: AddressBar;
  private readonly bar: PlayerBar;
  private readonly phase: PhaseLine;
  private readonly panels: ClassPanels;
  private readonly curves: CurvePanels;
  private readonly data: DataPanel;
  private readonly map: PhaseMap;
  private readonly takeAway: TakeAway;
  private readonly tour: Tour;
  private readonly figures: FigureMenu;
  private readonly controls: Control[] = [];
  private readonly messages = h("div", { class: "messages", role: "alert" });
  private readonly said = h("div", { class: "hidden", role: "status" });
  private readonly changes = h("p", { id: "changed", class: "soft", hidden: true });
  private readonly forms = h("select", { id: "theory" });
  private readonly theoryNote = h("p", { class: "soft" });
  private readonly numbers = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers" });

  constructor(private readonly root: HTMLElement) {
    measureText();
    this.palette = readPalette(root);
    const refuse = (sentence: string): void => this.refuse(sentence);
    const experiment = new Experiment({
      changed: () => this.showState(),
      opened: () => (this.figures.caption.hidden = true),
      moved: () => this.redraw(),
      refuse,
    });
    this.experiment = experiment;
    this.address = new AddressBar(
      () => experiment.address,
      (address) => this.read(address),
    );
    this.bar = new PlayerBar({
      toggle: () => experiment.toggle(),
      step: () => experiment.stepOnce(),
      reset: () => experiment.reset(),
      speed: (index) => experiment.setSpeed(index),
      look: (record) => experiment.look(record),
      logTime: (logTime) => experiment.view({ logTime }),
      end: (text) => experiment.setEnd(text),
    });
    this.phase = new PhaseLine((words) => (this.said.textContent = words));
    this.panels = new ClassPanels({
      scene: () => this.scene(),
      scale: () => experiment.scale,
      focus: (focus) => experiment.view({ focus }),
      look: (step) => experiment.lookAt(step),
    });
    this.curves = new CurvePanels({
      measure: (measure) => experiment.view({ measure }),
      keep: (scene) => experiment.keep(scene),
      lookAt: (step) => experiment.lookAt(step),
    });
    const choose = (data: Data, play?: boolean): void => {
      this.clearMessages();
      experiment.choose(data, play);
    };
    this.data = new DataPanel({
      choose,
      train: (data) => {
        choose(data, true);
        root.scrollIntoView({ behavior: "smooth" });
      },
      refuse,
    });
    this.map = new PhaseMap({
      setting: () => experiment.setting,
      steps: () => experiment.state.steps,
      palette: () => this.palette,
      load: (...cell) => {
        experiment.openCell(...cell);
        root.scrollIntoView({ behavior: "smooth" });
      },
      refuse,
    });
    this.takeAway = new TakeAway({
      scene: () => this.scene(),
      shown: () => this.panels.shown(experiment.rows.length, experiment.state.focus),
      scale: () => experiment.scale,
      link: () => this.address.link,
      refuse,
    });
    this.tour = new Tour({
      load: (state) => experiment.open(state, false),
      play: () => experiment.player.play(),
      closed: () => document.getElementById("tour-button")?.focus(),
    });
    this.figures = new FigureMenu((state) => experiment.open(state, true));
    this.build();
    this.listen();
    this.begin();
  }

  private begin(): void {
    const state = this.read(this.address.first);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!this.address.fresh || state.step > 0 || still) return;
    // Begin to move as soon as the page is in view: a report or a notebook may have it further down.
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      if (this.experiment.player.step === 0) this.experiment.player.play();
    });
    watch.observe(this.bar.element);
  }

  /** Open what an address stands for, and say what of it could not be used. */
  private read(address: string): State {
    const { state, problems } = readAddress(address);
    this.experiment.open(state, false);
    if (problems.length) this.refuse(problems.slice(0, 3).join(" "));
    return state;
  }

  private build(): void {
    this.root.classList.toggle("embedded", inHead("view") === "embedded");
    const drop = h("div", { class: "drop", "aria-hidden": "true" }, "Drop a classes file (TOML or JSON)");
    const main = h(
      "main",
      {},
      h("div", { class: "sticky" }, this.bar.element),
      this.phase.element,
      h("div", { class: "notes" }, kindsKey(), this.figures.caption, this.changes),
      this.panels.element,
      h("div", { class: "left" }, this.tour.element, this.side()),
      this.curves.element,
      this.more(),
    );
    this.root.append(this.head(), this.messages, main, foot(), this.said, drop);
    showTips(this.root);
  }

  private head(): HTMLElement {
    const start = { type: "button", class: "primary", id: "tour-button", onclick: () => this.tour.start() };
    const theme = { type: "button", class: "quiet", id: "theme", "aria-label": "Dark or light" };
    const recolor = (): void => {
      switchTheme();
      this.repaint();
    };
    return h(
      "header",
      { class: "top" },
      h(
        "div",
        {},
        h("h1", {}, "Scan and snap"),
        h(
          "p",
          { class: "lead" },
          "Watch a one-layer transformer learn to predict the next token. Its attention leaves the tokens ",
          h("span", { class: "key common" }, "common"),
          " to several answers, settles on a ",
          h("span", { class: "key distinct" }, "distinct"),
          " one, and then freezes.",
        ),
      ),
      h(
        "div",
        { class: "actions" },
        h("button", start, "Take the tour"),
        this.figures.element,
        h("button", { ...theme, onclick: recolor }, "◐"),
      ),
    );
  }

  /** The controls, in cards. */
  private side(): HTMLElement {
    const change = (part: Partial<Options>): void => {
      this.clearMessages();
      this.experiment.change(part);
    };
    const added = (each: Control): HTMLElement => {
      this.controls.push(each);
      return each.element;
    };
    const refuse = (sentence: string): void => this.refuse(sentence);
    const parts = (keys: readonly OptionKey[]): HTMLElement[] => keys.map((key) => added(control(key, change, refuse)));
    this.forms.append(...FORMS.map(([value, label]) => h("option", { value }, label)));
    this.forms.addEventListener("change", () => this.experiment.view({ theory: this.forms.value as Forms }));
    const show = explain(
      h("div", { class: "control" }, h("label", { for: "theory" }, "Show"), this.forms),
      "Draws Theorem 4’s growth factor and phase times, Lemma 6’s decoder and Theorem 3’s winner (★) over the measured curves.",
      this.forms,
    );
    const details = h("div", { class: "fold" }, ...parts(DETAILS));
    return h(
      "aside",
      { class: "side", "aria-label": "Controls" },
      card("Learning rates", ...parts(RATES), added(ratioControl(change, refuse)), ...parts(BESIDE_RATES)),
      this.data.element,
      card("Training", ...parts(TRAINING), h("details", {}, h("summary", {}, "Batches, start, layer"), details)),
      card("Theory on top", show, this.theoryNote),
    );
  }

  private more(): HTMLElement {
    const folded = (title: string, content: HTMLElement, opened?: () => void): HTMLElement =>
      h("details", { class: "card", ontoggle: opened }, h("summary", {}, title), content);
    return h(
      "section",
      { class: "more", "aria-label": "More" },
      folded("The model: from tokens to the next token", drawingOfModel()),
      folded("Phase map: many settings at once", this.map.element, () => this.map.redraw()),
      folded("Take it away: link, pictures, numbers, commands", this.takeAway.element),
      folded("The numbers", this.numbers, () => this.showNumbers(this.scene())),
    );
  }

  private listen(): void {
    new ResizeObserver(() => this.repaint()).observe(this.root);
    followTheme(() => this.repaint());
    listenForFiles(this.root, (file) => void this.data.take(file));
    listenForKeys({
      " ": () => this.experiment.toggle(),
      s: () => this.experiment.stepOnce(),
      r: () => this.experiment.reset(),
      l: () => this.experiment.view({ logTime: !this.experiment.state.logTime }),
    });
  }

  /** Draw all again, in the present colors and sizes. */
  private repaint(): void {
    measureText();
    this.palette = readPalette(this.root);
    this.redraw();
    this.map.redraw();
  }

  private scene(): Scene | null {
    return this.experiment.scene(this.palette);
  }

  /** Show the state in all controls. */
  private showState(): void {
    const { state, classes, rows, theory, setting } = this.experiment;
    for (const each of this.controls) each.show(state.options);
    this.data.show(state, classes, rows);
    this.forms.value = state.theory;
    fill(this.theoryNote, ...withSubscripts(state.theory === "none" ? "" : (theory?.why ?? "")));
    this.takeAway.show(state, setting);
    this.changes.hidden = state.changes.length === 0;
    const first = state.changes[0]?.step.toLocaleString("en-US");
    this.changes.textContent = `Controls were changed at step ${first}. Reset starts a clean run with them.`;
    this.address.writeLater();
    this.redraw();
  }

  /** Draw at the next animation frame, once however often it is asked for. */
  private redraw(): void {
    if (!this.experiment.player.playing) this.address.writeLater();
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      const scene = this.scene();
      if (scene) this.draw(scene);
    });
  }

  private draw(scene: Scene): void {
    const { player, state, looked, history, setting } = this.experiment;
    this.bar.show({
      playing: player.playing,
      end: state.steps,
      records: history.frames.length,
      record: looked ?? history.frames.length - 1,
      shownStep: scene.frame.step,
      speed: player.speed,
      logTime: state.logTime,
    });
    this.phase.show(scene.phase, setting);
    this.panels.show(scene);
    this.curves.show(scene);
    const now = performance.now();
    if (player.playing && now - this.described < DESCRIBE_MS) return;
    this.described = now;
    this.panels.describe(scene);
    this.curves.describe(scene);
    this.showNumbers(scene);
  }

  private showNumbers(scene: Scene | null): void {
    if (scene && this.numbers.closest("details")?.open) fill(this.numbers, numbersTable(scene));
  }

  private refuse(sentence: string): void {
    const close = { type: "button", class: "quiet", "aria-label": "Close the message" };
    fill(this.messages, h("p", {}, sentence), h("button", { ...close, onclick: () => this.clearMessages() }, "✕"));
    this.messages.classList.add("on");
  }

  private clearMessages(): void {
    fill(this.messages);
    this.messages.classList.remove("on");
  }
}

/** The drawing of the model, which the documentation shows too. */
function drawingOfModel(): HTMLElement {
  const alt =
    "The query selects a row of Z. A softmax of it is attention on the tokens. The tokens, weighted by attention, go through Y, which predicts the next token.";
  return h(
    "div",
    { class: "model" },
    h("img", { src: `data:image/svg+xml,${encodeURIComponent(model)}`, alt, width: 420, height: 344 }),
    h("p", { class: "soft" }, "Y and Z are learned. Attention and the loss on this page follow from them."),
  );
}

function card(title: string, ...content: HTMLElement[]): HTMLElement {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...content);
}

/** What the two colors mean, for frames, which have no lead. */
function kindsKey(): HTMLElement {
  const distinct = h("span", { class: "key distinct" }, "● distinct");
  const common = h("span", { class: "key common" }, "◇ common");
  return h("p", { class: "soft kinds" }, distinct, ": points to one answer. ", common, ": appears with several answers.");
}

function foot(): HTMLElement {
  return h(
    "footer",
    { class: "soft" },
    "After “Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer Transformer” (Tian, Wang, ",
    "Chen and Du, NeurIPS 2023). The Python library scansnap gives the same numbers. Keys: space plays, S steps, R resets, ",
    "L switches log time.",
  );
}
