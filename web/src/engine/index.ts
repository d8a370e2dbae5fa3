/** The engine's whole interface: the mathematics of the explorer, without a page. */
import type { Classes } from "./classes.ts";
import type { Frame } from "./run.ts";
import type { Setting } from "./setting.ts";

export { checkClasses, fromSupports, kinds, name, queries, type Classes } from "./classes.ts";
export { InputError } from "./errors.ts";
export { presets, singleCommon, synthetic } from "./presets.ts";
export type { MapRequest, MapQuantity, MapAxes, Reply, Request } from "./protocol.ts";
export { Run, type Frame } from "./run.ts";
export { checkSetting, defaultSetting, type Normalization, type Optimizer, type Setting } from "./setting.ts";

export interface Phase {
  name: "start" | "scanning" | "snapping" | "snapped" | "diverged";
  /** "scanning: common tokens are losing", "snapped at step 206". */
  words: string;
  /** When the last class snapped. */
  step?: number;
}

/** What the paper predicts for a setting; null where its assumptions do not hold (`why` says which). */
export interface Theory {
  why: string | null;
  /** Theorem 3: the token of each class that its query's attention goes to, as an index into `classes.tokens`. */
  predictedWinner: (number | null)[];
  /** Lemma 6: h*(s) of steps and h(t) of the flow, the decoder's growth. */
  decoderGrowth: { published: (t: number) => number; exact: (t: number) => number } | null;
  /** Theorem 4: the growth factor chi_l(t) of the common token, and of the winner of a class. */
  growthFactor: { published: (t: number) => number; exact: (t: number) => number } | null;
  /** Theorem 4's phase times, in steps. */
  scanEnd: number | null;
  snapStart: number | null;
}

/**
 * Whether a state is kept in a run's history: every step up to 256, then every second, and so on: at least 128 states
 * for each doubling, whatever the speed at which the run is played.
 */
export function isRecorded(step: number): boolean {
  return step % 2 ** Math.max(0, Math.floor(Math.log2(Math.max(step, 1))) - 7) === 0;
}

export function phase(_history: Frame[], _classes: Classes): Phase {
  throw new Error("not there yet");
}

export function theory(_setting: Setting): Theory {
  throw new Error("not there yet");
}

/** Classes written as TOML or JSON, as the library's `read_classes` takes them. */
export function readClasses(_text: string): Classes {
  throw new Error("not there yet");
}

/** The classes file (TOML) from which `readClasses` and the library give these classes back. */
export function writeClasses(_classes: Classes): string {
  throw new Error("not there yet");
}

/** Classes of labeled sentences, one a line: "label: words ...". */
export function sentencesToClasses(_text: string): Classes {
  throw new Error("not there yet");
}

/**
 * The command and the Python lines that give the same numbers.  `classesFile` is the name of the file that the page
 * exports with them, or a preset's name.
 */
export function command(_setting: Setting, _steps: number, _classesFile: string): string {
  throw new Error("not there yet");
}

export function python(_setting: Setting, _steps: number, _classesFile: string): string {
  throw new Error("not there yet");
}
