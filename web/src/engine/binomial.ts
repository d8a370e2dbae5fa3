/**
 * Binomial variates as the library draws them (`data/binomial.py`): small means are inverted term by term, larger ones
 * use Hörmann's transformed rejection BTRS (1993).  Logarithms may differ from the library's in the last bit, which
 * changes an accepted value about once in 10^13 draws for sequences of ten thousand tokens.
 */
import type { Stream } from "./random.ts";

const INVERSION_MEAN = 10;

/** Draws binomials one after another from the words of a stream. */
export class Binomials {
  /** The next word that is used. */
  counter = 0;

  constructor(readonly stream: Stream) {}

  draw(trials: number, p: number): number {
    if (trials <= 0 || p <= 0) return 0;
    if (p >= 1) return trials;
    return p > 0.5 ? trials - this.#half(trials, 1 - p) : this.#half(trials, p);
  }

  #half(trials: number, p: number): number {
    return trials * p < INVERSION_MEAN ? this.#invert(trials, p) : this.#reject(trials, p);
  }

  #invert(trials: number, p: number): number {
    const odds = p / (1 - p);
    const none = Math.exp(trials * Math.log1p(-p));
    for (;;) {
      let u = this.stream.uniform(this.counter++);
      let term = none;
      let value = 0;
      while (u > term) {
        u -= term;
        value += 1;
        if (value > trials) break; // rounding left a remainder beyond the last term: draw again
        term *= (odds * (trials - value + 1)) / value;
      }
      if (value <= trials) return value;
    }
  }

  #reject(trials: number, p: number): number {
    const spread = Math.sqrt(trials * p * (1 - p));
    const b = 1.15 + 2.53 * spread;
    const a = -0.0873 + 0.0248 * b + 0.01 * p;
    const c = trials * p + 0.5;
    const vr = 0.92 - 4.2 / b;
    const alpha = (2.83 + 5.1 / b) * spread;
    const logOdds = Math.log(p / (1 - p));
    const mode = Math.floor((trials + 1) * p);
    const logMode = logFactorial(mode) + logFactorial(trials - mode);
    for (;;) {
      const u = this.stream.uniform(this.counter) - 0.5;
      const v = this.stream.uniform(this.counter + 1);
      this.counter += 2;
      const us = 0.5 - Math.abs(u);
      const value = Math.floor(((2 * a) / us + b) * u + c);
      if (value < 0 || value > trials) continue;
      if (us >= 0.07 && v <= vr) return value;
      const height = Math.log((v * alpha) / (a / (us * us) + b));
      if (height <= logMode - logFactorial(value) - logFactorial(trials - value) + (value - mode) * logOdds) return value;
    }
  }
}

const SMALL = Array.from({ length: 32 }, (_, n) => {
  let product = 1;
  for (let k = 2; k <= Math.min(n, 18); k++) product *= k; // exact up to 18!
  let log = Math.log(product);
  for (let k = 19; k <= n; k++) log += Math.log(k);
  return log;
});

/** ln n!, by Stirling's series from 32 on, whose next term is below 1e-17 there. */
export function logFactorial(n: number): number {
  if (n < SMALL.length) return SMALL[n];
  const x = n + 1, inverse = 1 / x, square = inverse * inverse;
  const series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))));
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series;
}
