/** A training run: the library's `train`, one run at a time, in float64. */
import { isDistinct } from "./classes.ts";
import { Layer } from "./layer.ts";
import { makeLayout, type Layout } from "./layout.ts";
import { Modification } from "./modified.ts";
import { Sampler, type Request } from "./sampling.ts";
import { checkSetting, type Setting } from "./setting.ts";
import { makeStart } from "./start.ts";
import { Matrix } from "./update.ts";

/** The state after `step` updates, as the library records it; NaN once a run has diverged. */
export interface Frame {
  step: number;
  /** K x S: attention c_n over the contextual tokens (Eq. 5), at T -> infinity. */
  attention: Float64Array;
  /** Q x S: attention logits Z of each query, in the order of `queries(classes)`. */
  attentionLogits: Float64Array;
  /** K x K: the logits that class i gives to the next token of class j, at T -> infinity. */
  decoder: Float64Array;
  /** Cross-entropy in nats of the batch that the next update uses. */
  loss: number;
  /** The share of that batch whose next token alone has the largest logit. */
  accuracy: number;
  /** K: entropy in nats of attention on distinct tokens; NaN for a class without any. */
  entropy: Float64Array;
}

/** A run that can be advanced, looked at, and changed while it runs. */
export class Run {
  step = 0;
  /** Why the run cannot go on, in a sentence; null while it can. */
  stopped: string | null = null;
  #setting: Setting;
  #layout!: Layout;
  #decoder!: Matrix;
  #attentionLogits!: Matrix;
  #layer!: Layer;
  #sampler!: Sampler;
  #modification!: Modification;
  readonly #distinct: boolean[];

  constructor(setting: Setting) {
    this.#setting = checkSetting(setting);
    this.#distinct = isDistinct(setting.classes);
    this.#build();
  }

  get setting(): Setting {
    return this.#setting;
  }

  #build(): void {
    const setting = this.#setting, layout = makeLayout(setting), start = makeStart(layout, setting.init, setting.seed);
    const columns = layout.multiplicity.length;
    this.#layout = layout;
    this.#decoder = new Matrix(
      start.decoder,
      (i) => layout.rowMultiplicity[Math.floor(i / columns)] * layout.multiplicity[i % columns],
    );
    this.#attentionLogits = new Matrix(start.attentionLogits);
    this.#layer = new Layer(layout, start.decoder, start.attentionLogits);
    this.#layer.sumRows();
    this.#sampler = new Sampler(layout);
    this.#modification = new Modification(layout);
  }

  /** Take so many updates. */
  advance(steps: number): void {
    for (const last = this.step + steps; this.step < last && this.stopped === null; ) this.#update();
  }

  #update(): void {
    const { lrY, lrZ, optimizer, momentum, decoderGradient } = this.#setting;
    const layer = this.#layer, layout = this.#layout, columns = layout.multiplicity.length;
    const modification = decoderGradient === "modified" ? this.#modification : null;
    const gradient = this.#decoder.gradient, everywhere = new Float64Array(columns); // what all rows move by
    const addOuter = (n: number, w: ArrayLike<number>, mean: number, x: Float64Array, first: number) => {
      const rows = layout.slots[n];
      for (let i = 0; i < rows.length; i++) {
        const row = rows[i] * columns, part = w[i];
        for (let j = 0; j < columns; j++) gradient[row + j] += part * x[first + j];
      }
      if (mean !== 0) for (let j = 0; j < columns; j++) everywhere[j] -= mean * x[first + j];
    };
    let loss = 0;
    modification?.residuals.fill(0);
    this.#sampler.visit(this.#request(), this.step, (n, weights, share) => {
      layer.direct(n, weights);
      layer.read(n, share);
      loss += share * layer.loss;
      layer.addAttentionGradient(n, weights.length, this.#attentionLogits.gradient);
      addOuter(n, layer.w, layer.mean, layer.x, 0);
      if (modification) for (let j = 0; j < columns; j++) modification.residuals[n * columns + j] += layer.x[j];
    });
    if (!Number.isFinite(loss)) {
      this.stopped = `the run diverged at step ${this.step}: lower its learning rates.`;
      return;
    }
    if (modification) {
      layout.probs.forEach((probs, n) => {
        layer.direct(n, probs);
        modification.w[n].set(layer.w.subarray(0, modification.w[n].length));
        modification.mean[n] = layer.mean;
      });
      if (!modification.solve()) {
        this.stopped = `the directions of the classes became linearly dependent at step ${this.step}, where Lemma 3's `
          + "decoder gradient does not exist: choose true SGD.";
        return;
      }
      for (let n = 0; n < layout.slots.length; n++) {
        addOuter(n, modification.w[n], modification.mean[n], modification.residuals, n * columns);
      }
    }
    // The gradient by each entry is that of its column's group divided by mu.
    for (let i = 0, row = 0; row < layout.rowMultiplicity.length; row++) {
      for (let j = 0; j < columns; j++, i++) gradient[i] = (gradient[i] + everywhere[j]) / layout.multiplicity[j];
    }
    this.#decoder.move(optimizer, lrY, momentum);
    this.#attentionLogits.move(optimizer, lrZ, momentum);
    layer.sumRows();
    this.step += 1;
  }

  #request(): Request {
    const { seed, batchSize, seqLen } = this.#setting;
    return { seed, batchSize, length: seqLen === null ? 0 : seqLen - 1 };
  }

  frame(): Frame {
    const layout = this.#layout, layer = this.#layer, classes = layout.slots.length, tokens = layout.numTokens;
    const frame: Frame = {
      step: this.step,
      attention: new Float64Array(classes * tokens),
      attentionLogits: this.#attentionLogits.values.slice(),
      decoder: new Float64Array(classes * classes),
      loss: 0,
      accuracy: 0,
      entropy: new Float64Array(classes),
    };
    layout.probs.forEach((probs, n) => {
      layer.direct(n, probs);
      layer.read(n, 1);
      frame.decoder.set(layer.logits.subarray(0, classes), n * classes);
      attention(layout, n, frame);
    });
    frame.entropy = entropies(frame.attention, this.#distinct);
    this.#sampler.visit(this.#request(), this.step, (n, weights, share) => {
      layer.direct(n, weights);
      layer.read(n, share);
      frame.loss += share * layer.loss;
      frame.accuracy += layer.correct ? share : 0;
    });
    if (!Number.isFinite(frame.loss)) {
      frame.loss = frame.accuracy = NaN;
      for (const values of [frame.attention, frame.attentionLogits, frame.decoder, frame.entropy]) values.fill(NaN);
    }
    return frame;
  }

  /**
   * Change options and go on from the present state.  Another layer reads rows of Y that the present one does not: these
   * begin where they start.  Another optimizer begins without memory.  Classes and start cannot be changed.
   */
  change(part: Partial<Omit<Setting, "classes" | "init">>): void {
    const before = this.#setting, decoder = this.#decoder, logits = this.#attentionLogits, layout = this.#layout;
    this.#setting = checkSetting({ ...before, ...part, classes: before.classes, init: before.init });
    if (this.#setting.residual !== before.residual || this.#setting.normalization !== before.normalization) {
      this.#build();
      const columns = layout.multiplicity.length;
      const ownRows = Math.min(layout.ownRows, this.#layout.ownRows);
      const sharedRow = (rows: Layout) => (rows.rowMultiplicity.length > rows.ownRows ? rows.ownRows * columns : -1);
      for (const key of ["values", "velocity", "square"] as const) {
        this.#decoder[key].set(decoder[key].subarray(0, ownRows * columns));
        const from = sharedRow(layout), to = sharedRow(this.#layout);
        if (from >= 0 && to >= 0) this.#decoder[key].set(decoder[key].subarray(from, from + columns), to);
        this.#attentionLogits[key].set(logits[key]);
      }
      this.#decoder.age = decoder.age;
      this.#attentionLogits.age = logits.age;
      this.#layer.sumRows();
    }
    if (this.#setting.optimizer !== before.optimizer) {
      this.#decoder.forget();
      this.#attentionLogits.forget();
    }
    this.stopped = null;
  }
}

/** c_n = P(l|n) exp(z_l)/sum of the same, into row n of a frame's attention. */
function attention(layout: Layout, n: number, frame: Frame): void {
  const tokens = layout.numTokens, first = layout.queryIndex[n] * tokens, rows = layout.slots[n], probs = layout.probs[n];
  let top = -Infinity, sum = 0;
  for (let i = 0; i < probs.length; i++) top = Math.max(top, frame.attentionLogits[first + rows[i]]);
  for (let i = 0; i < probs.length; i++) {
    sum += frame.attention[n * tokens + rows[i]] = probs[i] * Math.exp(frame.attentionLogits[first + rows[i]] - top);
  }
  for (let i = 0; i < probs.length; i++) frame.attention[n * tokens + rows[i]] /= sum;
}

/** The entropy of each class's attention on its distinct tokens, renormalized there. */
function entropies(attention: Float64Array, distinct: boolean[]): Float64Array {
  const tokens = distinct.length;
  return Float64Array.from({ length: attention.length / tokens }, (_, n) => {
    let total = 0, entropy = 0;
    for (let l = 0; l < tokens; l++) if (distinct[l]) total += attention[n * tokens + l];
    for (let l = 0; l < tokens; l++) {
      const share = attention[n * tokens + l] / total;
      if (distinct[l] && share > 0) entropy -= share * Math.log(share);
    }
    return total > 0 ? entropy : NaN;
  });
}
