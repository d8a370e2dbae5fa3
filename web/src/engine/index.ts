/** The engine's whole interface: the mathematics of the explorer, without a page. */
import type { Classes } from "./classes.ts";
import type { Setting } from "./setting.ts";

export { InputError, type Classes } from "./classes.ts";
export type { Normalization, Optimizer, Setting } from "./setting.ts";
export type { MapRequest, MapQuantity, MapAxes, Reply, Request } from "./protocol.ts";

/** The state after `step` updates, as the library records it. */
export interface Frame {
  step: number;
  /** K x S: attention c_n over the contextual tokens (Eq. 5), at T -> infinity. */
  attention: Float64Array;
  /** Q x S: attention logits Z of each query, in the order of `queries(classes)`. */
  attentionLogits: Float64Array;
  /** K x K: the logits that class i gives to the next token of class j, at T -> infinity. */
  decoder: Float64Array;
  /** Cross-entropy in nats, as the library's `loss`: of the expected batch, or of the batch that comes next. */
  loss: number;
  accuracy: number;
  /** K: entropy in nats of attention on distinct tokens; NaN for a class without any. */
  entropy: Float64Array;
}

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

/** A run that can be advanced, looked at, and changed while it runs. */
export class Run {
  constructor(readonly setting: Setting) {}
  advance(_steps: number): void {
    throw new Error("not there yet");
  }
  frame(): Frame {
    throw new Error("not there yet");
  }
  /** Change options and go on from the present state; classes and start can only be changed by a new run. */
  change(_part: Partial<Setting>): void {
    throw new Error("not there yet");
  }
}

/** The distinct query tokens, in order of first use: the rows of attention logits. */
export function queries(classes: Classes): number[] {
  return [...new Set(classes.query)];
}

/** The role of each contextual token: common to several classes, or distinct of one. */
export function kinds(classes: Classes): ("common" | "distinct")[] {
  return classes.tokens.map((_, l) => (classes.probs.filter((row) => row[l] > 0).length > 1 ? "common" : "distinct"));
}

/** The token's name, or its id if it has none. */
export function name(classes: Classes, token: number): string {
  return classes.tokenNames?.[token] ?? String(token);
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

/** Classes by the library's names: syn-small, syn-medium-1, -3, -5, -10, single-common. */
export function presets(): Record<string, Classes> {
  throw new Error("not there yet");
}

/** K classes with `numQuery` queries that share their common tokens, as the library's `synthetic`. */
export function synthetic(_sizes: {
  numQuery: number;
  nextPerQuery: number;
  numCommon?: number;
  numDistinct?: number;
  vocabSize?: number;
}): Classes {
  throw new Error("not there yet");
}

/** The default setting for classes: the population, SGD, zero start. */
export function defaultSetting(classes: Classes): Setting {
  return { classes, lrY: 1, lrZ: 1, decoderGradient: "true", batchSize: null, seqLen: null, seed: 0, optimizer: "sgd",
    momentum: 0, init: "zeros", residual: false, normalization: "l2" };
}

/** Refuse a setting that the engine cannot run, with an `InputError`; give it back otherwise. */
export function checkSetting(_setting: Setting): Setting {
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
