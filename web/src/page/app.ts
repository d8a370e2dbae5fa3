/** The page: it holds the state, gives it to the player, and shows what comes back. */
import {
  type Classes,
  type Frame,
  type Phase,
  type Setting,
  type Theory,
  checkSetting,
  theory,
} from "../engine/index.ts";
import { barScale } from "./attention_picture.ts";
import { timeAxis } from "./axis.ts";
import { ClassPanels } from "./class_panels.ts";
import { type Control, control, ratioControl } from "./controls.ts";
import { type CurveChart, drawCurves, plotBox } from "./curve_picture.ts";
import { MEASURE_LABELS, MEASURE_TIPS, lossChart, measureChart } from "./curves.ts";
import { DataPanel } from "./data_panel.ts";
import { drawDecoder } from "./decoder_picture.ts";
import { fill, h } from "./dom.ts";
import { FIGURES, STATEMENTS } from "./figures.ts";
import { type ClassRows, History, classRows } from "./history.ts";
import { OPTION, type OptionKey, type Options } from "./options.ts";
import { type Palette, readPalette } from "./palette.ts";
import { PhaseMap } from "./phase_map.ts";
import { Picture, measureText } from "./picture.ts";
import { Player, usualSpeed } from "./player.ts";
import { PlayerBar } from "./player_bar.ts";
import type { Scene } from "./scene.ts";
import {
  type Data,
  type Forms,
  type Measure,
  type State,
  MOST_STEPS,
  classesOf,
  readAddress,
  usable,
  writeAddress,
} from "./state.ts";
import { TakeAway } from "./take_away.ts";
import { growthChart, leadChart } from "./theory_chart.ts";
import { explain, showTips } from "./tooltip.ts";
import { Tour } from "./tour.ts";

/** What the page was given in its head, when it was written to a file or shown inside another page. */
function inHead(name: "address" | "view"): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="scansnap-${name}"]`)?.content ?? "";
}

const TRAINING: readonly OptionKey[] = [
  "decoderGradient",
  "optimizer",
  "momentum",
  "batchSize",
  "seqLen",
  "seed",
  "init",
  "residual",
  "normalization",
];

const MOST_SHOWN = 200;
const KEEP = "Keep these curves to compare";

const PHASES: Record<Phase["name"], string> = {
  start: "Attention begins as tokens are frequent: at the black ticks.",
  scanning: "The decoder learns which tokens tell the next one; attention leaves those that do not.",
  snapping: "The decoder’s errors shrink, and with them the push on attention.",
  snapped: "The decoder is nearly always right, so there is hardly a gradient left to move attention.",
  diverged: "The rates are too large for this setting: make them smaller and press reset.",
};

/** A place for curves, how they are made from a scene, and those that are shown. */
interface Chart {
  picture: Picture;
  place: HTMLElement;
  make: (scene: Scene) => CurveChart | null;
  content: CurveChart | null;
}

export class App {
  private state: State;
  private classes!: Classes;
  private rows: ClassRows[] = [];
  private theory: Theory | null = null;
  private history = new History();
  private phase: Phase = { name: "start", words: "" };
  private palette: Palette;
  private scale = 0.1;
  /** The record that is looked at; null is the present one. */
  private looked: number | null = null;
  private drawing = false;
  private described = 0;
  private speedChosen = false;

  private readonly player: Player;
  private readonly bar: PlayerBar;
  private readonly panels: ClassPanels;
  private readonly data: DataPanel;
  private readonly map: PhaseMap;
  private readonly takeAway: TakeAway;
  private readonly tour: Tour;
  private readonly controls: Control[];
  private readonly messages = h("div", { class: "messages", role: "alert" });
  private readonly said = h("div", { class: "hidden", role: "status" });
  private readonly phaseName = h("strong", { id: "phase" });
  private readonly phaseWords = h("span", { class: "soft" });
  private readonly phaseChip = h("div", { class: "phase" }, this.phaseName, this.phaseWords);
  private readonly changedNote = h("p", { id: "changed", class: "soft", hidden: true });
  private readonly caption = h("p", { id: "caption", class: "soft", hidden: true });
  private readonly forms = h("select", { id: "theory" });
  private readonly theoryNote = h("p", { class: "soft" });
  private readonly measure = h("select", { id: "measure" });
  private readonly numbers = h("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "numbers of the class",
  });
  private readonly charts: Chart[];
  private readonly decoder: Picture;
  private readonly keepButton = h(
    "button",
    { type: "button", id: "keep", class: "chip", "aria-pressed": "false", onclick: () => this.keep() },
    KEEP,
  );

  constructor(private readonly root: HTMLElement) {
    measureText();
    this.palette = readPalette(root);
    const fresh = location.hash.length <= 1;
    const { state, problems } = readAddress(fresh ? inHead("address") : location.hash);
    this.state = state;
    const change = (part: Partial<Options>): void => this.change(part);
    const refuse = (sentence: string): void => this.refuse(sentence);
    this.player = new Player({
      frames: (frames, phase) => this.receive(frames, phase),
      changed: () => this.playingChanged(),
      failed: (message) => this.refuse(message),
    });
    this.bar = new PlayerBar({
      toggle: () => this.toggle(),
      step: () => this.stepOnce(),
      reset: () => this.reset(),
      speed: (index) => this.setSpeed(index),
      look: (record) => this.look(record),
      logTime: (on) => this.update({ logTime: on }),
      end: (text) => this.setEnd(text),
    });
    this.panels = new ClassPanels({
      scene: () => this.scene(),
      scale: () => this.scale,
      focus: (index) => this.update({ focus: index }),
      look: (step) => this.lookAt(step),
    });
    this.data = new DataPanel({ choose: (data) => this.choose(data), refuse });
    this.map = new PhaseMap({
      setting: () => this.setting(),
      steps: () => this.state.steps,
      palette: () => this.palette,
      load: (setting, steps, ownClasses) => this.loadCell(setting, steps, ownClasses),
      refuse,
    });
    this.takeAway = new TakeAway({
      scene: () => this.scene(),
      shown: () => this.panels.shown(this.rows.length, this.state.focus),
      scale: () => this.scale,
      link: () => this.link(),
      refuse,
    });
    this.tour = new Tour({
      load: (tourState) => this.open(tourState, false),
      play: () => this.player.play(),
      closed: () => document.getElementById("tour-button")?.focus(),
    });
    this.controls = [
      control("lrY", change, refuse),
      control("lrZ", change, refuse),
      ratioControl(change, refuse),
      ...TRAINING.map((key) => control(key, change, refuse)),
    ];
    this.decoder = new Picture(
      "Decoder’s logits",
      () => 190,
      (pen, box) => this.withScene((scene) => drawDecoder(pen, box, scene)),
    );
    this.charts = [lossChart, measureChart, growthChart, leadChart].map((chart) => this.curve(chart));
    this.build();
    showTips(root);
    this.listen();
    this.open(state, false);
    if (fresh && state.step === 0 && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.playWhenSeen();
    if (problems.length) this.refuse(problems.slice(0, 3).join(" "));
  }

  /** Begin to move as soon as the page is in view: a report or a notebook may have it further down. */
  private playWhenSeen(): void {
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      if (this.player.step === 0) this.player.play();
    });
    watch.observe(this.bar.element);
  }

  private build(): void {
    const [rateY, rateZ, ratio, ...training] = this.controls.map((each) => each.element);
    for (const [value, label] of [
      ["none", "off"],
      ["published", "as published"],
      ["exact", "exact form"],
      ["both", "both"],
    ])
      this.forms.append(h("option", { value }, label));
    for (const [value, label] of Object.entries(MEASURE_LABELS)) this.measure.append(h("option", { value }, label));
    this.forms.addEventListener("change", () => this.update({ theory: this.forms.value as Forms }));
    this.measure.addEventListener("change", () => this.update({ measure: this.measure.value as Measure }));
    const figures = h(
      "select",
      { id: "figure", "aria-label": "Open a figure of the paper" },
      h("option", { value: "" }, "Figures of the paper…"),
    );
    for (const group of new Set(FIGURES.map((each) => each.group))) {
      figures.append(
        h(
          "optgroup",
          { label: group },
          ...FIGURES.map(
            (each, i) => each.group === group && h("option", { value: i }, `${group.split(":")[0]}: ${each.label}`),
          ),
        ),
      );
    }
    figures.addEventListener("change", () => {
      const chosen = FIGURES[Number(figures.value)];
      if (figures.value !== "" && chosen) {
        this.open(chosen.state, true);
        fill(
          this.caption,
          h("strong", {}, `${chosen.group.split(":")[0]}, ${chosen.label}. `),
          STATEMENTS[chosen.group],
        );
        this.caption.hidden = false;
      }
      figures.value = "";
    });
    const theme = h(
      "button",
      { type: "button", class: "quiet", id: "theme", "aria-label": "Dark or light", onclick: () => this.switchTheme() },
      "◐",
    );
    this.root.classList.toggle("embedded", inHead("view") === "embedded");
    this.root.append(
      h(
        "header",
        { class: "top" },
        h(
          "div",
          {},
          h("h1", {}, "Scan and snap"),
          h(
            "p",
            { class: "lead" },
            "Watch a one-layer transformer learn to predict the next token. Its attention drops the tokens ",
            h("span", { class: "key common" }, "common"),
            " to all answers, picks the ",
            h("span", { class: "key distinct" }, "distinct"),
            " one that tells most, and then freezes.",
          ),
        ),
        h(
          "div",
          { class: "actions" },
          h(
            "button",
            { type: "button", class: "primary", id: "tour-button", onclick: () => this.startTour() },
            "Take the tour",
          ),
          figures,
          theme,
        ),
      ),
      this.messages,
      h(
        "main",
        {},
        h("div", { class: "sticky" }, this.bar.element),
        this.phaseChip,
        h("div", { class: "changed" }, this.caption, this.changedNote),
        this.panels.element,
        h(
          "div",
          { class: "left" },
          this.tour.element,
          h(
            "aside",
            { class: "side", "aria-label": "Controls" },
            h(
              "section",
              { class: "card", "aria-label": "Learning rates" },
              h("h2", {}, "Learning rates"),
              rateY,
              rateZ,
              ratio,
            ),
            this.data.element,
            h(
              "section",
              { class: "card", "aria-label": "Training" },
              h("h2", {}, "Training"),
              training[0],
              training[1],
              h(
                "details",
                {},
                h("summary", {}, "Batches, start, layer"),
                h("div", { class: "fold" }, ...training.slice(2)),
              ),
            ),
            h(
              "section",
              { class: "card", "aria-label": "Theory" },
              h("h2", {}, "Theory on top"),
              explain(
                h("div", { class: "control" }, h("label", { for: "theory" }, "Show"), this.forms),
                "Theorem 4’s growth factor and phase times, Lemma 6’s decoder and Theorem 3’s winner (★), over what is measured.",
                this.forms,
              ),
              this.theoryNote,
            ),
          ),
        ),
        h(
          "section",
          { class: "curves", "aria-label": "Curves" },
          h(
            "div",
            { class: "tools" },
            explain(
              this.keepButton,
              "Draws the curves of this run in gray under those of the next, whatever you change.",
            ),
          ),
          h(
            "div",
            { class: "charts" },
            this.charts[0].place,
            h(
              "div",
              { class: "chart" },
              explain(
                h(
                  "label",
                  { class: "hidden-label", for: "measure" },
                  h("span", { class: "hidden" }, "Measure of attention"),
                  this.measure,
                ),
                MEASURE_TIPS.entropy,
                this.measure,
              ),
              this.charts[1].place,
            ),
            h("div", { class: "chart" }, h("div", { class: "place" }, this.decoder.canvas)),
            this.charts[2].place,
            this.charts[3].place,
          ),
        ),
        h(
          "section",
          { class: "more", "aria-label": "More" },
          h(
            "details",
            { class: "card", ontoggle: () => this.map.redraw() },
            h("summary", {}, "Phase map: many settings at once"),
            this.map.element,
          ),
          h(
            "details",
            { class: "card" },
            h("summary", {}, "Take it away: link, pictures, numbers, commands"),
            this.takeAway.element,
          ),
          h(
            "details",
            { class: "card", ontoggle: () => this.showNumbers() },
            h("summary", {}, "The numbers"),
            this.numbers,
          ),
        ),
      ),
      h(
        "footer",
        { class: "soft" },
        "After “Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer Transformer” (Tian, Wang, Chen and Du, NeurIPS 2023). The numbers are those of the library scansnap. Keys: space plays, S steps, R resets, L switches log time.",
      ),
      this.said,
      h("div", { class: "drop", "aria-hidden": "true" }, "Drop a classes file (TOML or JSON)"),
    );
  }

  private curve(make: Chart["make"]): Chart {
    const picture = new Picture(
      "Curve",
      () => 190,
      (pen, box) =>
        this.withScene((scene) => {
          if (chart.content) drawCurves(pen, box, scene, chart.content, make !== measureChart);
        }),
    );
    const look = (event: PointerEvent): void => {
      const plot = plotBox(picture.box);
      const place = (picture.where(event).x - plot.x) / plot.width;
      if (place >= 0 && place <= 1.02) this.withScene((scene) => this.lookAt(scene.time.at(place)));
    };
    picture.canvas.addEventListener("pointerdown", look);
    picture.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) look(event);
    });
    const chart: Chart = { picture, place: h("div", { class: "place" }, picture.canvas), make, content: null };
    return chart;
  }

  private listen(): void {
    addEventListener("hashchange", () => {
      if (location.hash === this.written) return;
      const { state, problems } = readAddress(location.hash);
      this.open(state, false);
      if (problems.length) this.refuse(problems.slice(0, 3).join(" "));
    });
    const repaint = (): void => {
      measureText();
      this.palette = readPalette(this.root);
      this.redraw();
      this.map.redraw();
    };
    new ResizeObserver(repaint).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    addEventListener("themechange", repaint);
    document.addEventListener("keydown", (event) => this.key(event));
    this.listenForFiles();
  }

  private listenForFiles(): void {
    const over = (on: boolean) => (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.root.classList.toggle("dropping", on);
    };
    document.addEventListener("dragover", over(true));
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) this.root.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      over(false)(event);
      const file = event.dataTransfer?.files[0];
      if (file) void this.data.take(file);
    });
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input:not([type=range]):not([type=checkbox]), textarea, select")) return;
    const actions: Record<string, () => void> = {
      " ": () => this.toggle(),
      s: () => this.stepOnce(),
      r: () => this.reset(),
      l: () => this.update({ logTime: !this.state.logTime }),
    };
    const action = actions[event.key.toLowerCase()];
    if (!action || (event.key === " " && target.closest("button, summary, a, input, [role=application]"))) return;
    event.preventDefault();
    action();
  }

  /** Begin an experiment: from its start, or replayed up to the step that its link was made at. */
  private open(state: State, play: boolean): void {
    try {
      const classes = classesOf(state.data);
      if (classes.query.length > MOST_SHOWN) {
        throw new Error(
          `There are ${classes.query.length} classes: the page shows at most ${MOST_SHOWN}, so use the library for these, or give fewer.`,
        );
      }
      checkSetting({ classes, ...usable(state.options) });
      this.classes = classes;
    } catch (error) {
      this.refuse((error as Error).message);
      if (this.rows.length) return;
      state = { ...readAddress("").state };
      this.classes = classesOf(state.data);
    }
    this.state = {
      ...state,
      options: { ...state.options },
      focus: Math.min(state.focus, this.classes.query.length - 1),
    };
    this.rows = classRows(this.classes);
    this.caption.hidden = true;
    if (!this.speedChosen) this.player.speed = usualSpeed(state.steps, state.logTime);
    this.begin();
    this.pending = [...state.changes].sort((a, b) => a.step - b.step);
    this.player.breaks = this.pending.map((change) => change.step);
    this.applyPending(0);
    this.player.pause();
    if (state.step > 0) this.player.runTo(state.step);
    else if (play) this.player.play();
    this.showControls();
  }

  /** Changes of a link that are still to come. */
  private pending: State["changes"] = [];

  private applyPending(step: number): void {
    while (this.pending.length && this.pending[0].step <= step) {
      Object.assign(this.state.options, this.pending.shift()?.part);
      this.player.change(usable(this.state.options));
      this.showControls();
    }
  }

  /** Load the present setting at step 0. */
  private begin(): void {
    this.history = new History();
    this.looked = null;
    this.scale = 0.1;
    this.pending = [];
    this.player.end = this.state.steps;
    this.player.logTime = this.state.logTime;
    this.base = { ...this.state.options };
    this.refreshTheory();
    this.player.load(this.setting());
  }

  /** The run that was kept for comparison, as it was then. */
  private kept: Scene | null = null;

  private keep(): void {
    const scene = this.scene();
    this.kept = this.kept || !scene ? null : { ...scene, kept: null };
    this.keepButton.setAttribute("aria-pressed", String(this.kept !== null));
    const { lrY, lrZ } = this.state.options;
    this.keepButton.textContent = this.kept ? `Kept: η_Y = ${lrY}, η_Z = ${lrZ} ✕` : KEEP;
    this.redraw();
  }

  /** The options that the run began with. */
  private base!: Options;

  private setting(): Setting {
    return { classes: this.classes, ...usable(this.state.options) };
  }

  private refreshTheory(): void {
    try {
      this.theory = theory(this.setting());
    } catch {
      this.theory = null;
    }
  }

  private toggle(): void {
    if (this.player.playing) return this.player.pause();
    this.looked = null;
    if (this.player.step >= this.state.steps) {
      const steps = Math.min(MOST_STEPS, this.state.steps * (this.state.logTime ? 10 : 2));
      this.state.steps = this.player.end = steps;
      this.showControls();
    }
    this.player.play();
  }

  private stepOnce(): void {
    if (this.player.playing) this.player.pause();
    this.looked = null;
    this.player.stepOnce();
  }

  private reset(): void {
    const { playing } = this.player;
    this.state.changes = [];
    this.begin();
    if (!playing) this.player.pause();
    this.showControls();
  }

  private change(part: Partial<Options>): void {
    const options = { ...this.state.options, ...part };
    try {
      checkSetting({ classes: this.classes, ...usable(options) });
    } catch (error) {
      this.refuse((error as Error).message);
      this.showControls();
      return;
    }
    this.clearMessages();
    this.state.options = options;
    const restarts = Object.keys(part).some((key) => OPTION[key as OptionKey].restarts);
    if (restarts || this.player.atStart) {
      this.state.changes = [];
      this.begin();
    } else {
      const step = this.player.change(usable(options));
      this.state.changes = this.state.changes.slice(0, this.state.changes.length - this.pending.length);
      this.pending = [];
      const last = this.state.changes[this.state.changes.length - 1];
      if (last?.step === step) Object.assign(last.part, part);
      else this.state.changes.push({ step, part });
      this.refreshTheory();
    }
    this.showControls();
  }

  private choose(data: Data): void {
    const { playing } = this.player;
    this.clearMessages();
    this.open(
      { ...this.state, data, changes: [], step: 0, focus: data.kind === "own" ? this.state.focus : 0 },
      playing,
    );
  }

  /** Watch a cell of the phase map. */
  private loadCell(setting: Setting, steps: number, ownClasses: boolean): void {
    const { classes, ...options } = setting;
    const data: Data = ownClasses ? { kind: "own", classes } : this.state.data;
    this.open(
      {
        ...this.state,
        data,
        options: { ...options, momentum: this.state.options.momentum },
        steps,
        changes: [],
        step: 0,
        focus: 0,
      },
      true,
    );
    this.root.scrollIntoView({ behavior: "smooth" });
  }

  private update(part: Partial<State>): void {
    Object.assign(this.state, part);
    this.player.logTime = this.state.logTime;
    this.showControls();
    this.redraw();
  }

  private setSpeed(index: number): void {
    this.player.speed = index;
    this.speedChosen = true;
    this.redraw();
  }

  private setEnd(text: string): void {
    const value = Number(text.replaceAll(",", ""));
    if (!Number.isInteger(value) || value < 1 || value > MOST_STEPS) {
      this.refuse(
        `until is “${text.slice(0, 40)}”: give a whole number of steps from 1 to ${MOST_STEPS.toLocaleString("en-US")}.`,
      );
    } else this.state.steps = this.player.end = Math.max(value, this.player.step, 1);
    this.showControls();
    this.redraw();
  }

  private look(record: number): void {
    if (this.player.playing) this.player.pause();
    this.looked = record >= this.history.frames.length - 1 ? null : record;
    this.redraw();
  }

  private lookAt(step: number): void {
    this.look(this.history.indexAt(Math.round(step)));
  }

  private receive(frames: Frame[], phase: Phase): void {
    for (const frame of frames) this.history.add(frame);
    this.phase = phase;
    this.scale = barScale(this.history, this.scale);
    this.applyPending(this.player.step);
    if (!this.player.playing) this.writeLater();
    this.redraw();
  }

  private playingChanged(): void {
    if (!this.player.playing) this.writeLater();
    this.redraw();
  }

  private scene(): Scene | null {
    const { frames } = this.history;
    if (frames.length === 0) return null;
    const live = this.looked === null;
    return {
      classes: this.classes,
      rows: this.rows,
      history: this.history,
      frame: frames[this.looked ?? frames.length - 1] ?? this.history.last,
      live,
      phase: this.phase,
      time: timeAxis(Math.max(this.state.steps, this.history.last.step), this.state.logTime),
      theory: this.theory,
      forms: this.state.theory,
      measure: this.state.measure,
      focus: this.state.focus,
      palette: this.palette,
      kept: this.kept,
    };
  }

  private withScene(use: (scene: Scene) => void): void {
    const scene = this.scene();
    if (scene) use(scene);
  }

  /** Draw at the next animation frame, once however often it is asked for. */
  private redraw(): void {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.draw();
    });
  }

  private draw(): void {
    const scene = this.scene();
    if (!scene) return;
    const { player, history } = this;
    this.bar.show({
      playing: player.playing,
      step: player.step,
      end: this.state.steps,
      records: history.frames.length,
      record: this.looked ?? history.frames.length - 1,
      shownStep: scene.frame.step,
      speed: player.speed,
      logTime: this.state.logTime,
    });
    this.panels.show(scene);
    for (const chart of this.charts) {
      chart.content = chart.make(scene);
      chart.place.hidden = chart.content === null;
      if (chart.content) chart.picture.draw();
    }
    this.decoder.draw();
    this.showPhase();
    const now = performance.now();
    if (!player.playing || now - this.described > 2000) {
      this.described = now;
      this.describe(scene);
    }
  }

  private showPhase(): void {
    const words = this.phase.words.charAt(0).toUpperCase() + this.phase.words.slice(1);
    if (this.phaseName.textContent !== words) this.phaseName.textContent = words;
    if (this.phaseChip.dataset.phase === this.phase.name) return;
    this.phaseChip.dataset.phase = this.phase.name;
    this.phaseWords.textContent = PHASES[this.phase.name];
    this.say(words);
  }

  private describe(scene: Scene): void {
    this.panels.describe(scene);
    for (const { picture, content } of this.charts) {
      if (!content) continue;
      const curve = content.curves[content.curves.length - 1];
      const value = curve.values[Math.min(this.looked ?? curve.values.length - 1, curve.values.length - 1)];
      picture.describe(
        `${content.title} over time: ${Number.isFinite(value) ? Number(value.toPrecision(3)) : "no number"} at step ${scene.frame.step}.`,
      );
    }
    this.decoder.describe(`Decoder’s logits of ${scene.rows.length} classes at step ${scene.frame.step}.`);
    this.showNumbers();
  }

  private showNumbers(): void {
    const scene = this.scene();
    if (!scene || !(this.numbers.parentElement as HTMLDetailsElement | null)?.open) return;
    const { index, rows } = scene.rows[scene.focus];
    const width = scene.classes.tokens.length;
    fill(
      this.numbers,
      h(
        "table",
        {},
        h(
          "caption",
          {},
          `Class ${index + 1} at step ${scene.frame.step}; loss ${scene.frame.loss.toPrecision(6)} nats`,
        ),
        h(
          "thead",
          {},
          h("tr", {}, ...["token", "kind", "P(l|n)", "attention"].map((words) => h("th", { scope: "col" }, words))),
        ),
        h(
          "tbody",
          {},
          ...rows.map((row) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, row.name),
              h("td", {}, row.kind),
              h("td", {}, row.prob.toFixed(4)),
              h("td", {}, scene.frame.attention[index * width + row.token].toFixed(4)),
            ),
          ),
        ),
      ),
    );
  }

  private showControls(): void {
    for (const each of this.controls) each.show(this.state.options);
    this.data.show(this.state, this.classes, this.rows);
    this.forms.value = this.state.theory;
    this.measure.value = this.state.measure;
    this.theoryNote.textContent = this.state.theory === "none" ? "" : (this.theory?.why ?? "");
    this.takeAway.show(this.state, this.setting());
    const { changes } = this.state;
    this.changedNote.hidden = changes.length === 0;
    this.changedNote.textContent = changes.length
      ? `Controls were changed at step ${changes[0].step.toLocaleString("en-US")}. Reset starts a clean run with them.`
      : "";
    this.writeLater();
    this.redraw();
  }

  private link(): string {
    return `${location.href.split("#")[0]}${writeAddress({ ...this.linked(), step: this.looked === null ? this.player.step : this.history.frames[this.looked].step })}`;
  }

  /** The state as a link has it: the options that the run began with, and the changes since. */
  private linked(): State {
    return { ...this.state, options: this.state.changes.length ? this.base : this.state.options };
  }

  private written = "";
  private writing: ReturnType<typeof setTimeout> | undefined;

  /** Write the state after # a little later, so that dragging does not write a hundred addresses. */
  private writeLater(): void {
    clearTimeout(this.writing);
    this.writing = setTimeout(() => {
      const link = this.link();
      this.written = link.slice(link.indexOf("#"));
      if (parent !== window) parent.postMessage({ scansnapAddress: this.written }, "*"); // a notebook listens
      try {
        if (link.length < 1e6) history.replaceState(null, "", this.written);
      } catch {
        // a page inside another one may not own its address
      }
    }, 250);
  }

  private startTour(): void {
    this.tour.start();
  }

  private switchTheme(): void {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    dispatchEvent(new Event("themechange"));
  }

  private refuse(sentence: string): void {
    fill(
      this.messages,
      h("p", {}, sentence),
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": "Close the message", onclick: () => this.clearMessages() },
        "✕",
      ),
    );
    this.messages.classList.add("on");
  }

  private clearMessages(): void {
    fill(this.messages);
    this.messages.classList.remove("on");
  }

  private say(words: string): void {
    this.said.textContent = words;
  }
}
