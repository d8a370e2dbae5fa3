/** What is trained and how: the options of the library's `train` that the explorer has, with the library's names. */
import type { Classes } from "./classes.ts";

export type Optimizer = "sgd" | "adam" | "sign_sgd" | "normalized_sgd";
export type Normalization = "l2" | "layer";

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
