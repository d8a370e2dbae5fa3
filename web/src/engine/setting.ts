/** What is trained and how: the options of the library's `train` that the explorer has, with the library's names. */
import { checkClasses, type Classes } from "./classes.ts";
import { InputError } from "./errors.ts";

export const OPTIMIZERS = ["sgd", "adam", "sign_sgd", "normalized_sgd"] as const;
export const NORMALIZATIONS = ["l2", "layer"] as const;
export type Optimizer = (typeof OPTIMIZERS)[number];
export type Normalization = (typeof NORMALIZATIONS)[number];

/** The most numbers that Y may hold, and that a batch may count, before a page would stand still. */
export const MOST_ENTRIES = 4_000_000;
export const MOST_DRAWS = 4_000_000;

export interface Setting {
  classes: Classes;
  /** eta_Y and eta_Z. */
  lrY: number;
  lrZ: number;
  /** SGD's gradient of the decoder (Eq. 3), or Lemma 3's (Eq. 26). */
  decoderGradient: "true" | "modified";
  /** Sequences per update; null takes every class with its probability: the expected update. */
  batchSize: number | null;
  /** T; null is infinity, which replaces counts by P(l|n). */
  seqLen: number | null;
  /** From 0 to 2^53 - 1. */
  seed: number;
  optimizer: Optimizer;
  /** Momentum of sgd, in [0, 1); 0 for the others. */
  momentum: number;
  init: "zeros" | "uniform";
  residual: boolean;
  normalization: Normalization;
}

/** The default setting for classes: the expected update of SGD from zeros. */
export function defaultSetting(classes: Classes): Setting {
  return {
    classes,
    lrY: 1,
    lrZ: 1,
    decoderGradient: "true",
    batchSize: null,
    seqLen: null,
    seed: 0,
    optimizer: "sgd",
    momentum: 0,
    init: "zeros",
    residual: false,
    normalization: "l2",
  };
}

/** Refuse a setting that cannot be run, with an `InputError`; give it back otherwise. */
export function checkSetting(setting: Setting): Setting {
  const { classes, batchSize, seqLen, momentum } = setting;
  checkClasses(classes);
  for (const [word, rate] of [["lr_y", setting.lrY], ["lr_z", setting.lrZ]] as const) {
    if (!(Number.isFinite(rate) && rate >= 0)) {
      throw new InputError(`${word} is ${rate}: give a finite learning rate of at least 0.`);
    }
  }
  oneOf("decoder_gradient", setting.decoderGradient, ["true", "modified"]);
  oneOf("optimizer", setting.optimizer, OPTIMIZERS);
  oneOf("normalization", setting.normalization, NORMALIZATIONS);
  oneOf("init", setting.init, ["zeros", "uniform"]);
  if (typeof setting.residual !== "boolean") throw new InputError(`residual is ${setting.residual}: give true or false.`);
  if (batchSize !== null) whole("batch_size", batchSize, 1, MOST_DRAWS);
  if (seqLen !== null) whole("seq_len", seqLen, 2, 1_000_000);
  whole("seed", setting.seed, 0, Number.MAX_SAFE_INTEGER);
  if (!(momentum >= 0 && momentum < 1)) throw new InputError(`momentum is ${momentum}: give a number from 0 to below 1.`);
  if (momentum > 0 && setting.optimizer !== "sgd") {
    throw new InputError(`momentum is ${momentum} but the optimizer is ${setting.optimizer}: momentum belongs to sgd.`);
  }
  const sequences = batchSize ?? classes.query.length;
  // Longer sequences are counted at a cost that does not grow with their length.
  if (sequences * Math.min(seqLen ?? 1, 1280) > MOST_DRAWS) {
    throw new InputError(`${sequences} sequences of ${seqLen} tokens are drawn at every update: at most `
      + `${MOST_DRAWS.toLocaleString("en-US")} tokens are allowed here.`);
  }
  const rows = classes.tokens.length, merged = setting.init === "zeros" ? classes.query.length + 1 : classes.vocabSize;
  const drawn = setting.init === "uniform" && setting.normalization === "layer" ? classes.vocabSize : rows;
  if (drawn * merged > MOST_ENTRIES) {
    throw new InputError(`${drawn.toLocaleString("en-US")} rows and ${merged.toLocaleString("en-US")} columns of Y are more `
      + `than the ${MOST_ENTRIES.toLocaleString("en-US")} numbers allowed here: `
      + (setting.init === "uniform" ? "start from zeros, which merges columns." : "give fewer classes or tokens."));
  }
  return setting;
}

function oneOf(word: string, value: unknown, allowed: readonly string[]): void {
  if (!allowed.includes(value as string)) {
    throw new InputError(`${word} is '${String(value).slice(0, 60)}': give one of ${allowed.join(", ")}.`);
  }
}

function whole(word: string, value: number, least: number, most: number): void {
  if (!(Number.isInteger(value) && value >= least && value <= most)) {
    throw new InputError(`${word} is ${String(value).slice(0, 60)}: give a whole number from ${least} to ${most}.`);
  }
}
