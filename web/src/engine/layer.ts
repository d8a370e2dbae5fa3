/**
 * Lemma 1 for one sequence at a time: from attention logits to the logits of next tokens, and the gradient back.
 *
 * For a sequence of class n with query m and token weights a_l (its counts, or P(l|n) for T -> infinity)
 *
 *     c_l = a_l exp(z_ml),      u = LN(c),      v = u,  or with the residual connection  v = LN(u + e_m)
 *     logits = Y^T v,           x = e_n - softmax(logits),      dY = v x^T
 *
 * where LN(s) = (s - mean s)/|s - mean s|, with means over all M tokens, or without means: the paper's.  LN does not see
 * a constant added to all entries where it subtracts the mean, so for LN(u + e_m) only the sparse part u^ = c/|c - mean c|
 * of u is needed.  Every direction is v = w - m 1 with a sparse w, which has entries for the class's slots alone, and
 * its mean m.  With S the sum of all rows of Y,
 *
 *     logits = sum_l w_l Y_l - m S,       row l of Y moves by (w_l - m) x: by w_l x, and all rows together by -m x.
 *
 * Backward, with g = Y x the gradient that reaches v, its mean h = S . x/M and a = v . g = logits . x, the gradient of
 * LN is a projection (Eq. 4), (g - h - v a)/|r| for v = LN(r), and dz_l = c_l dJ/dc_l:
 *
 *     dz_l = u^_l (g_l - h - u_l a)                                                              (no residual connection)
 *     d_l  = (g_l - h - v_l a)/|r|,      dz_l = u^_l (d_l - u_l sum_k u^_k d_k)                              (with it)
 *
 * The last sum stands for u . d, since the entries of d sum to zero where means are subtracted.  Columns of Y are groups
 * of mu_j equal ones: softmax weighs a column by mu_j, and x_j is the group's (`layout.ts`).
 */
import type { Layout } from "./layout.ts";

export class Layer {
  /** The sparse part w of the direction last computed, by slot, and the mean m that is subtracted from all entries. */
  readonly w: Float64Array;
  mean = 0;
  /** Logits, then the residual x up to the batch's share, by column. */
  readonly logits: Float64Array;
  readonly x: Float64Array;
  loss = 0;
  correct = false;

  readonly #layout: Layout;
  readonly #decoder: Float64Array;
  readonly #attentionLogits: Float64Array;
  /** S, the sum of all rows of Y; 0 where it is not read. */
  readonly #sum: Float64Array;
  readonly #unit: Float64Array; // u^
  readonly #reaching: Float64Array; // g, then d
  #unitMean = 0; // mean(u^)
  #inverseLength = 1; // 1/|r|
  #present = 0; // how many tokens the sequence has

  constructor(layout: Layout, decoder: Float64Array, attentionLogits: Float64Array) {
    const widest = Math.max(...layout.slots.map((slots) => slots.length));
    this.#layout = layout;
    this.#decoder = decoder;
    this.#attentionLogits = attentionLogits;
    this.w = new Float64Array(widest);
    this.#unit = new Float64Array(widest);
    this.#reaching = new Float64Array(widest);
    this.logits = new Float64Array(layout.multiplicity.length);
    this.x = new Float64Array(layout.multiplicity.length);
    this.#sum = new Float64Array(layout.multiplicity.length);
  }

  /** Sum the rows of Y; to be called after each change of Y. */
  sumRows(): void {
    const { centered, rowMultiplicity } = this.#layout;
    if (!centered) return;
    const columns = this.#sum.length;
    this.#sum.fill(0);
    for (let row = 0; row < rowMultiplicity.length; row++) {
      for (let j = 0; j < columns; j++) this.#sum[j] += rowMultiplicity[row] * this.#decoder[row * columns + j];
    }
  }

  /** The direction of a sequence of class n: `w` and `mean`. */
  direct(n: number, weights: ArrayLike<number>): void {
    const layout = this.#layout, slots = layout.slots[n], own = layout.ownSlot[n];
    const first = layout.queryIndex[n] * layout.numTokens, z = this.#attentionLogits, unit = this.#unit;
    let top = -Infinity;
    for (let i = 0; i < weights.length; i++) if (weights[i] > 0) top = Math.max(top, z[first + slots[i]]);
    this.#present = 0;
    for (let i = 0; i < weights.length; i++) {
      unit[i] = weights[i] > 0 ? weights[i] * Math.exp(z[first + slots[i]] - top) : 0;
      if (weights[i] > 0) this.#present += 1;
    }
    for (let i = weights.length; i < slots.length; i++) unit[i] = 0;
    this.#normalize(unit, slots.length);
    this.#unitMean = this.mean;
    for (let i = 0; i < slots.length; i++) this.w[i] = unit[i];
    if (own >= 0) {
      this.w[own] += 1;
      this.#inverseLength = this.#normalize(this.w, slots.length);
    }
  }

  /** Divide the sparse s by |s - mean s|, and leave the mean of the result in `mean`; 1/|s - mean s|. */
  #normalize(s: Float64Array, count: number): number {
    const { centered, vocabSize } = this.#layout;
    let mean = 0, square = 0;
    if (centered) {
      for (let i = 0; i < count; i++) mean += s[i];
      mean /= vocabSize;
      square = (vocabSize - count) * mean * mean;
    }
    for (let i = 0; i < count; i++) square += (s[i] - mean) * (s[i] - mean);
    const scale = 1 / Math.sqrt(square);
    for (let i = 0; i < count; i++) s[i] *= scale;
    this.mean = mean * scale;
    return scale;
  }

  /** Logits, loss and residual x times `share` of a sequence whose direction is known. */
  read(n: number, share: number): void {
    const { multiplicity, slots } = this.#layout, rows = slots[n], logits = this.logits, x = this.x;
    const columns = logits.length;
    logits.fill(0);
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i] * columns, part = this.w[i];
      for (let j = 0; j < columns; j++) logits[j] += part * this.#decoder[row + j];
    }
    if (this.mean !== 0) for (let j = 0; j < columns; j++) logits[j] -= this.mean * this.#sum[j];
    // 1 - p_n is the sum of the other probabilities, never a difference from one: late in training it is far below the
    // rounding of p_n.
    let other = -Infinity;
    for (let j = 0; j < columns; j++) if (j !== n && logits[j] > other) other = logits[j];
    const own = logits[n], top = Math.max(own, other);
    let rest = 0;
    for (let j = 0; j < columns; j++) {
      x[j] = j === n ? 0 : multiplicity[j] * Math.exp(logits[j] - top);
      rest += x[j];
    }
    const ownPart = Math.exp(own - top), scale = -share / (rest + ownPart);
    for (let j = 0; j < columns; j++) x[j] *= scale;
    x[n] = -rest * scale;
    this.correct = own > other;
    // ln(1 + rest/own), or where the own logit is far below the others top - own + ln(rest + own)
    this.loss = own - top > -30 ? Math.log1p(rest / ownPart) : top - own + Math.log(rest + ownPart);
  }

  /** Add to the gradient of Z what the sequence last read gives. */
  addAttentionGradient(n: number, size: number, gradient: Float64Array): void {
    if (this.#present < 2) return; // a token alone has all the attention, whatever its logit
    const layout = this.#layout, rows = layout.slots[n], columns = this.logits.length;
    const x = this.x, g = this.#reaching, unit = this.#unit;
    let a = 0, h = 0;
    for (let j = 0; j < columns; j++) a += this.logits[j] * x[j];
    if (layout.centered) {
      for (let j = 0; j < columns; j++) h += this.#sum[j] * x[j];
      h /= layout.vocabSize;
    }
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i] * columns;
      let sum = 0;
      for (let j = 0; j < columns; j++) sum += this.#decoder[row + j] * x[j];
      g[i] = sum - h;
    }
    if (layout.ownSlot[n] >= 0) {
      let along = 0;
      for (let i = 0; i < rows.length; i++) {
        g[i] = (g[i] - (this.w[i] - this.mean) * a) * this.#inverseLength;
        along += unit[i] * g[i];
      }
      a = along;
    }
    const first = layout.queryIndex[n] * layout.numTokens;
    for (let i = 0; i < size; i++) gradient[first + rows[i]] += unit[i] * (g[i] - (unit[i] - this.#unitMean) * a);
  }
}
