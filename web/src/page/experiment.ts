/** An experiment under way: its state, its run and what the run has been through; no part of the page. */
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
import { type ClassRows, History, classRows } from "./history.ts";
import { OPTION, type OptionKey, type Options, shown } from "./options.ts";
import type { Palette } from "./palette.ts";
import { Player, usualSpeed } from "./player.ts";
import type { Scene } from "./scene.ts";
import {
  type Change,
  type Data,
  type State,
  MOST_STEPS,
  classesOf,
  firstState,
  usable,
  writeAddress,
} from "./state.ts";

export interface ExperimentEvents {
  /** The state is another: controls are to show it. */
  changed(): void;
  /** Another experiment was opened. */
  opened(): void;
  /** There is something new to draw. */
  moved(): void;
  refuse(sentence: string): void;
}

const MOST_CLASSES = 200;
const LEAST_SCALE = 0.1;

export class Experiment {
  state: State = firstState();
  classes!: Classes;
  rows: ClassRows[] = [];
  theory: Theory | null = null;
  history = new History();
  phase: Phase = { name: "start", words: "" };
  /** The end of the bars' scale. */
  scale = LEAST_SCALE;
  /** The record that is looked at; null is the present one. */
  looked: number | null = null;
  /** A run that was kept for comparison, as it was then. */
  kept: Scene["kept"] = null;
  readonly player: Player;

  /** The options that the run began with. */
  private base!: Options;
  /** Changes of a link that are still to come. */
  private pending: Change[] = [];
  private speedChosen = false;

  constructor(private readonly events: ExperimentEvents) {
    this.player = new Player({
      frames: (frames, phase) => this.receive(frames, phase),
      changed: () => events.moved(),
      failed: (message) => events.refuse(message),
    });
  }

  get setting(): Setting {
    return { classes: this.classes, ...usable(this.state.options) };
  }

  /** The address of what is looked at: the options that the run began with, and the changes since. */
  get address(): string {
    const step = this.looked === null ? this.player.step : this.history.frames[this.looked].step;
    const options = this.state.changes.length ? this.base : this.state.options;
    return writeAddress({ ...this.state, options, step });
  }

  scene(palette: Palette): Scene | null {
    const { history, state } = this;
    if (history.frames.length === 0) return null;
    return {
      classes: this.classes,
      rows: this.rows,
      history,
      frame: history.frames[this.looked ?? history.frames.length - 1] ?? history.last,
      live: this.looked === null,
      phase: this.phase,
      time: timeAxis(Math.max(state.steps, history.last.step), state.logTime),
      theory: this.theory,
      forms: state.theory,
      measure: state.measure,
      focus: state.focus,
      palette,
      kept: this.kept,
    };
  }

  /** Begin an experiment: from its start, or replayed up to the step that its link was made at. */
  open(state: State, play: boolean): void {
    let opened = state;
    try {
      this.classes = usableClasses(state);
    } catch (error) {
      this.events.refuse((error as Error).message);
      if (this.rows.length) return;
      opened = firstState();
      this.classes = classesOf(opened.data);
    }
    const focus = Math.min(opened.focus, this.classes.query.length - 1);
    this.state = { ...opened, options: { ...opened.options }, focus };
    this.rows = classRows(this.classes);
    if (!this.speedChosen) this.player.speed = usualSpeed(opened.steps, opened.logTime);
    this.events.opened();
    this.begin();
    this.pending = [...opened.changes].sort((a, b) => a.step - b.step);
    this.player.breaks = this.pending.map((change) => change.step);
    this.applyPending(0);
    this.player.pause();
    if (opened.step > 0) this.player.runTo(opened.step);
    else if (play) this.player.play();
    this.events.changed();
  }

  /** Other data, with all else as it is. */
  choose(data: Data, play = this.player.playing): void {
    const focus = data.kind === "own" ? this.state.focus : 0;
    this.open({ ...this.state, data, changes: [], step: 0, focus }, play);
  }

  /** A cell of the phase map. */
  openCell({ classes, ...options }: Setting, steps: number, ownClasses: boolean): void {
    const data: Data = ownClasses ? { kind: "own", classes } : this.state.data;
    const { momentum } = this.state.options; // which the cell's options lack if the optimizer has none
    this.open({ ...this.state, data, options: { ...options, momentum }, steps, changes: [], step: 0, focus: 0 }, true);
  }

  /** Change options: at once and in the run under way, or by a new run where they concern the start. */
  change(part: Partial<Options>): void {
    const options = { ...this.state.options, ...part };
    try {
      checkSetting({ classes: this.classes, ...usable(options) });
    } catch (error) {
      this.events.refuse((error as Error).message);
      this.events.changed();
      return;
    }
    this.state.options = options;
    const restarts = Object.keys(part).some((key) => OPTION[key as OptionKey].restarts);
    if (restarts || this.player.atStart) {
      this.state.changes = [];
      this.begin();
    } else {
      const step = this.player.change(usable(options));
      const past = this.state.changes.slice(0, this.state.changes.length - this.pending.length);
      const last = past[past.length - 1];
      this.pending = [];
      if (last?.step === step) Object.assign(last.part, part);
      else past.push({ step, part });
      this.state.changes = past;
      this.refreshTheory();
    }
    this.events.changed();
  }

  /** Change how the run is looked at. */
  view(part: Partial<Pick<State, "logTime" | "theory" | "measure" | "focus">>): void {
    Object.assign(this.state, part);
    this.player.logTime = this.state.logTime;
    this.events.changed();
  }

  toggle(): void {
    if (this.player.playing) return this.player.pause();
    this.looked = null;
    if (this.player.step >= this.state.steps) this.goOn();
    this.player.play();
  }

  stepOnce(): void {
    if (this.player.playing) this.player.pause();
    this.looked = null;
    this.player.stepOnce();
  }

  reset(): void {
    this.state.changes = [];
    this.begin();
    this.events.changed();
  }

  setSpeed(index: number): void {
    this.player.speed = index;
    this.speedChosen = true;
    this.events.moved();
  }

  /** Where playing stops, as typed. */
  setEnd(text: string): void {
    const value = Number(text.replaceAll(",", ""));
    if (Number.isInteger(value) && value >= 1 && value <= MOST_STEPS) {
      this.state.steps = this.player.end = Math.max(value, this.player.step);
    } else {
      const most = MOST_STEPS.toLocaleString("en-US");
      this.events.refuse(`until is “${shown(text)}”: give a whole number of steps from 1 to ${most}.`);
    }
    this.events.changed();
  }

  /** Look at a record. */
  look(record: number): void {
    if (this.player.playing) this.player.pause();
    this.looked = record >= this.history.frames.length - 1 ? null : record;
    this.events.moved();
  }

  lookAt(step: number): void {
    this.look(this.history.indexAt(Math.round(step)));
  }

  /** Keep the run to compare later ones with it, or let go the one that was kept. */
  keep(scene: Scene | null): void {
    const { lrY, lrZ } = this.state.options;
    this.kept = scene && { ...scene, kept: null, label: `decoder rate ${lrY}, attention rate ${lrZ}` };
    this.events.moved();
  }

  /** Load the present setting at step 0. */
  private begin(): void {
    this.history = new History();
    this.looked = null;
    this.scale = LEAST_SCALE;
    this.pending = [];
    this.player.end = this.state.steps;
    this.player.logTime = this.state.logTime;
    this.base = { ...this.state.options };
    this.refreshTheory();
    this.player.load(this.setting);
  }

  private goOn(): void {
    this.state.steps = Math.min(MOST_STEPS, this.state.steps * (this.state.logTime ? 10 : 2));
    this.player.end = this.state.steps;
    this.events.changed();
  }

  private applyPending(step: number): void {
    while (this.pending.length && this.pending[0].step <= step) {
      Object.assign(this.state.options, this.pending.shift()?.part);
      this.player.change(usable(this.state.options));
      this.events.changed();
    }
  }

  private refreshTheory(): void {
    this.theory = theory(this.setting);
  }

  private receive(frames: Frame[], phase: Phase): void {
    for (const frame of frames) this.history.add(frame);
    this.phase = phase;
    this.scale = barScale(this.history, this.scale);
    this.applyPending(this.player.step);
    this.events.moved();
  }
}

/** The classes of a state that can be run and shown; a sentence where they cannot. */
function usableClasses(state: State): Classes {
  const classes = classesOf(state.data);
  const count = classes.query.length;
  if (count > MOST_CLASSES) {
    throw new Error(
      `There are ${count} classes: the page shows at most ${MOST_CLASSES}, so use the library for these, or give fewer.`,
    );
  }
  checkSetting({ classes, ...usable(state.options) });
  return classes;
}
