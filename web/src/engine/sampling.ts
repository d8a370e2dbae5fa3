/**
 * The sequences of an update, as counts of their tokens: the library's for the same seed (`data/sampling.py`).
 *
 * Word 0 of a sequence's stream gives its class.  Up to `COUNTING_LIMIT` contextual tokens, each is 32 bits of the words
 * that follow, compared with the cumulative P(l|n) as 32-bit integers; longer sequences are counted by one binomial per
 * token, given the tokens before it.
 */
import { Binomials } from "./binomial.ts";
import type { Layout } from "./layout.ts";
import { Stream } from "./random.ts";

const COUNTING_LIMIT = 1279;
const BLOCK = 64;

/** What is drawn at an update: how many sequences (null: one of each class), and how long (0: P(l|n) for counts). */
export interface Request {
  seed: number;
  batchSize: number | null;
  length: number;
}

/** Called with each sequence: its class, the weights of the class's tokens, and its weight in the batch. */
export type Visit = (n: number, weights: ArrayLike<number>, share: number) => void;

export class Sampler {
  readonly #layout: Layout;
  readonly #thresholds: Int32Array[];
  readonly #conditional: Float64Array[];
  readonly #classThresholds: Float64Array;
  readonly #stream = new Stream();
  readonly #binomials = new Binomials(this.#stream);
  readonly #counts: Float64Array[];

  constructor(layout: Layout) {
    this.#layout = layout;
    this.#thresholds = layout.probs.map(thresholds);
    this.#conditional = layout.probs.map(conditional);
    const cumulative = runningSum(layout.weights);
    this.#classThresholds = cumulative.map((sum) => sum / cumulative[cumulative.length - 1]);
    this.#counts = layout.probs.map((p) => new Float64Array(p.length));
  }

  /** Visit the sequences of update `step`. */
  visit(request: Request, step: number, visit: Visit): void {
    const { batchSize, length, seed } = request;
    const { probs, weights } = this.#layout;
    const total = batchSize ?? weights.length;
    for (let b = 0; b < total; b++) {
      if (batchSize !== null || length > 0) this.#stream.of(seed, step, b);
      const n = batchSize === null ? b : this.#drawClass();
      visit(n, length > 0 ? this.#drawCounts(n, length) : probs[n], batchSize === null ? weights[n] : 1 / batchSize);
    }
  }

  #drawClass(): number {
    const u = this.#stream.uniform(0);
    let n = 0;
    while (n < this.#classThresholds.length - 1 && this.#classThresholds[n] <= u) n++;
    return n;
  }

  #drawCounts(n: number, length: number): Float64Array {
    const counts = this.#counts[n];
    if (length > COUNTING_LIMIT) {
      const binomials = this.#binomials;
      binomials.counter = 1;
      let left = length;
      for (let w = 0; w < counts.length; w++) {
        counts[w] = binomials.draw(left, this.#conditional[n][w]);
        left -= counts[w];
      }
      return counts;
    }
    counts.fill(0);
    // The low halves of the words are the first half of the draws of whole blocks, the high halves the second.
    const table = this.#thresholds[n], stream = this.#stream;
    const half = (Math.ceil(length / BLOCK) * BLOCK) / 2;
    for (let j = 0; j < Math.min(half, length); j++) {
      stream.word(j + 1);
      counts[below(table, stream.low ^ 0x80000000)] += 1;
      if (half + j < length) counts[below(table, stream.high ^ 0x80000000)] += 1;
    }
    return counts;
  }
}

/** How many of the increasing thresholds, but the last, are at most `value`: the token that a draw means. */
function below(table: Int32Array, value: number): number {
  let low = 0, high = table.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (table[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Cumulative probabilities as 32 bits, offset by -2^31 to compare as signed integers. */
function thresholds(p: Float64Array): Int32Array {
  const sum = pairwiseSum(p);
  return Int32Array.from(runningSum(p), (part) => Math.min(roundHalfEven((part / sum) * 2 ** 32), 2 ** 32 - 1) - 2 ** 31);
}

/** P(token w | not one of the tokens before it). */
function conditional(p: Float64Array): Float64Array {
  const tail = runningSum(p.slice().reverse()).reverse();
  return p.map((value, w) => value / tail[w]);
}

function runningSum(values: Float64Array): Float64Array {
  let sum = 0;
  return values.map((value) => (sum += value));
}

function roundHalfEven(x: number): number {
  const rounded = Math.round(x);
  return rounded - x === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

/**
 * The sum as NumPy rounds it: eight sums side by side within blocks of 128 numbers, and halves beyond that.
 */
export function pairwiseSum(values: ArrayLike<number>, first = 0, count = values.length): number {
  if (count < 8) {
    let sum = -0;
    for (let i = 0; i < count; i++) sum += values[first + i];
    return sum;
  }
  if (count > 128) {
    const half = (count >> 1) - ((count >> 1) % 8);
    return pairwiseSum(values, first, half) + pairwiseSum(values, first + half, count - half);
  }
  const sums = Array.from({ length: 8 }, (_, i) => values[first + i]);
  let i = 8;
  for (; i < count - (count % 8); i += 8) for (let k = 0; k < 8; k++) sums[k] += values[first + i + k];
  const [a, b, c, d, e, f, g, h] = sums;
  let sum = a + b + (c + d) + (e + f + (g + h));
  for (; i < count; i++) sum += values[first + i];
  return sum;
}
