/**
 * Lemma 3's decoder gradient (Eq. 26).  A sequence of class n moves Y along v + V A e_n instead of v, with the columns of
 * V the directions of the classes for T -> infinity and A = (V^T V)^{-1} - I.  With X_n the sum of the residuals of the
 * sequences of class n, that adds
 *
 *     sum_n' v_n' R_n'^T,      R = (V^T V)^{-1} X - X:
 *
 * one more sequence for each class, with the residual R_n.  For v = w - m 1 with the mean m of w over M tokens,
 * v_n . v_n' = w_n . w_n' - M m_n m_n'.
 */
import type { Layout } from "./layout.ts";

export class Modification {
  /** X, then R: K x C. */
  readonly residuals: Float64Array;
  /** The directions of the classes: w by slot, and m. */
  readonly w: Float64Array[];
  readonly mean: Float64Array;
  readonly #layout: Layout;
  readonly #gram: Float64Array;
  readonly #dense: Float64Array;

  constructor(layout: Layout) {
    const classes = layout.slots.length;
    this.#layout = layout;
    this.residuals = new Float64Array(classes * layout.multiplicity.length);
    this.w = layout.slots.map((slots) => new Float64Array(slots.length));
    this.mean = new Float64Array(classes);
    this.#gram = new Float64Array(classes * classes);
    this.#dense = new Float64Array(layout.rowMultiplicity.length);
  }

  /** X -> R; false if V^T V is singular up to rounding. */
  solve(): boolean {
    const classes = this.mean.length, columns = this.residuals.length / classes, x = this.residuals;
    if (!this.#decompose()) return false;
    const triangle = this.#gram, solution = x.slice();
    for (let j = 0; j < columns; j++) {
      for (let i = 0; i < classes; i++) {
        let sum = solution[i * columns + j];
        for (let k = 0; k < i; k++) sum -= triangle[i * classes + k] * solution[k * columns + j];
        solution[i * columns + j] = sum / triangle[i * classes + i];
      }
      for (let i = classes - 1; i >= 0; i--) {
        let sum = solution[i * columns + j];
        for (let k = i + 1; k < classes; k++) sum -= triangle[k * classes + i] * solution[k * columns + j];
        solution[i * columns + j] = sum / triangle[i * classes + i];
      }
    }
    for (let i = 0; i < x.length; i++) x[i] = solution[i] - x[i];
    return true;
  }

  /** Cholesky's triangle of V^T V, whose diagonal is 1. */
  #decompose(): boolean {
    const { slots, vocabSize } = this.#layout, classes = slots.length, gram = this.#gram, dense = this.#dense;
    for (let j = 0; j < classes; j++) {
      dense.fill(0);
      slots[j].forEach((row, i) => (dense[row] = this.w[j][i]));
      for (let i = j; i < classes; i++) {
        let sum = -vocabSize * this.mean[i] * this.mean[j];
        for (let k = 0; k < slots[i].length; k++) sum += this.w[i][k] * dense[slots[i][k]];
        for (let k = 0; k < j; k++) sum -= gram[i * classes + k] * gram[j * classes + k];
        if (i === j && !(sum > 1e-13)) return false;
        gram[i * classes + j] = i === j ? Math.sqrt(sum) : sum / gram[j * classes + j];
      }
    }
    return true;
  }
}
