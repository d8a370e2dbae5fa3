/** A map over two options: one run for each cell, and what its attention came to. */
import { isDistinct } from "./classes.ts";
import { synthetic } from "./presets.ts";
import { Run } from "./run.ts";
import type { Setting } from "./setting.ts";
import { findSnap } from "./snap.ts";

/** Averages over classes, as the library's `phase_diagram` has them: final entropy on distinct tokens, final attention on
 * the most attended token, and the step of the snap (of the classes that have snapped). */
export type MapQuantity = "entropy" | "winner" | "snap";
export type MapAxes = "lr_y,lr_z" | "ratio,K";

/** A map over `x` and `y`: eta_Y and eta_Z, or eta_Y/eta_Z (eta_Z as in the setting) and the number of classes. */
export interface MapRequest {
  setting: Setting;
  axes: MapAxes;
  quantity: MapQuantity;
  x: number[];
  y: number[];
  steps: number;
}

/** Records between which attention is compared for the snap: as many for any number of steps. */
const RECORDS = 128;

/** The setting of a cell.  Another number of classes makes synthetic ones of one query, with as many common tokens, and
 * distinct tokens in each class, as the present ones have. */
export function cellSetting({ setting, axes, x, y }: MapRequest, column: number, row: number): Setting {
  if (axes === "lr_y,lr_z") return { ...setting, lrY: x[column], lrZ: y[row] };
  const { classes } = setting, distinct = isDistinct(classes);
  const own = classes.probs.map((probs) => probs.filter((p, l) => p > 0 && distinct[l]).length);
  const numDistinct = Math.max(1, ...own), numCommon = distinct.filter((alone) => !alone).length;
  const used = numCommon + y[row] * (numDistinct + 1) + 1;
  return {
    ...setting,
    lrY: x[column] * setting.lrZ,
    classes: synthetic({
      numQuery: 1, nextPerQuery: y[row], numCommon, numDistinct, vocabSize: Math.max(classes.vocabSize, used),
    }),
  };
}

/** The steps between the records of a cell. */
export function cellGap(steps: number): number {
  return Math.max(1, Math.ceil(steps / RECORDS));
}

/** A cell that is computed piece by piece. */
export class CellWork {
  readonly #run: Run;
  readonly #request: MapRequest;
  readonly #steps: number[] = [];
  readonly #moved: number[][] = []; // for each class
  #before: Float64Array | null = null;

  constructor(request: MapRequest, column: number, row: number) {
    this.#request = request;
    this.#run = new Run(cellSetting(request, column, row));
  }

  /** Work until a time of `performance.now()`; whether the cell is done. */
  work(deadline: number): boolean {
    const { steps, quantity } = this.#request, gap = quantity === "snap" ? cellGap(steps) : steps;
    const run = this.#run;
    for (;;) {
      if (run.step % gap === 0 || run.step >= steps) this.#record();
      if (run.step >= steps || run.stopped !== null) return true;
      const next = Math.min(steps, (Math.floor(run.step / gap) + 1) * gap);
      while (run.step < next && run.stopped === null && performance.now() < deadline) run.advance(1);
      if (run.step < next && run.stopped === null) return false;
    }
  }

  #record(): void {
    const run = this.#run;
    if (this.#request.quantity !== "snap" || run.step === this.#steps[this.#steps.length - 1]) return;
    const { attention } = run.frame(), classes = run.setting.classes.query.length, tokens = attention.length / classes;
    this.#steps.push(run.step);
    for (let n = 0; n < classes; n++) {
      let sum = 0;
      for (let i = n * tokens; i < (n + 1) * tokens; i++) sum += Math.abs(attention[i] - (this.#before?.[i] ?? NaN));
      (this.#moved[n] ??= []).push(sum / 2);
    }
    this.#before = attention;
  }

  /** The quantity; NaN for a run that could not go on, and for a snap that has not come. */
  value(): number {
    if (this.#run.stopped !== null) return NaN;
    if (this.#request.quantity === "snap") {
      return mean(this.#moved.map((moved) => findSnap(this.#steps, moved).step ?? NaN));
    }
    const { attention, entropy } = this.#run.frame();
    if (this.#request.quantity === "entropy") return mean([...entropy]);
    const tokens = attention.length / entropy.length;
    return mean([...entropy].map((_, n) => Math.max(...attention.subarray(n * tokens, (n + 1) * tokens))));
  }
}

/** The mean of those that are numbers. */
function mean(values: number[]): number {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}
