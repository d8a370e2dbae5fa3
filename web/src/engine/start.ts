/** Where training starts: zeros, or the library's uniform entries in +-1/sqrt(M), bit for bit (`dynamics/start.py`). */
import type { Layout } from "./layout.ts";
import { Stream } from "./random.ts";

const DECODER_STEP = -1;
const ATTENTION_STEP = -2;

/** Compact Y (D x C) and Z (Q x S). */
export interface Start {
  decoder: Float64Array;
  attentionLogits: Float64Array;
}

export function makeStart(layout: Layout, init: "zeros" | "uniform", seed: number): Start {
  const columns = layout.multiplicity.length, rows = layout.rowMultiplicity.length;
  const start = {
    decoder: new Float64Array(rows * columns),
    attentionLogits: new Float64Array(layout.numQueries * layout.numTokens),
  };
  const columnOfToken = layout.columnOfToken;
  if (init === "zeros" || columnOfToken === null) return start;
  const stream = new Stream();
  const bound = inverseRoot(layout.vocabSize);
  const entry = (j: number) => bound * (2 * stream.uniform(j) - 1);
  for (let row = 0; row < layout.ownRows; row++) {
    stream.of(seed, DECODER_STEP, row);
    for (let token = 0; token < columns; token++) start.decoder[row * columns + columnOfToken[token]] = entry(token);
  }
  if (rows > layout.ownRows) {
    // The shared row is the mean of the rows that it stands for.
    const shared = layout.rowMultiplicity[layout.ownRows], first = layout.ownRows * columns;
    for (let row = 0; row < shared; row++) {
      stream.of(seed, DECODER_STEP, layout.ownRows + row);
      for (let token = 0; token < columns; token++) start.decoder[first + columnOfToken[token]] += entry(token);
    }
    for (let column = 0; column < columns; column++) start.decoder[first + column] /= shared;
  }
  for (let q = 0; q < layout.numQueries; q++) {
    stream.of(seed, ATTENTION_STEP, q);
    for (let l = 0; l < layout.numTokens; l++) start.attentionLogits[q * layout.numTokens + l] = entry(l);
  }
  return start;
}

/**
 * 1/sqrt(size), rounded correctly: one step of Newton's method, with the rest 1 - size x^2 formed without rounding from
 * the halves of x.
 */
export function inverseRoot(size: number): number {
  const x = 1 / Math.sqrt(size);
  const shifted = x * 134217729; // 2^27 + 1: the high half has 26 bits
  const high = shifted - (shifted - x), low = x - high;
  const square = x * x;
  const squareRest = high * high - square + 2 * high * low + low * low;
  const product = size * square;
  const sHigh = square * 134217729 - (square * 134217729 - square), sLow = square - sHigh;
  const productRest = size * sHigh - product + size * sLow;
  return x + 0.5 * x * (1 - product - productRest - size * squareRest);
}
