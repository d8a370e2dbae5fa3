/**
 * How gradients move a matrix (the library's `dynamics/update_rules.py`), with g the gradient of J by each entry:
 *
 *     sgd               v <- mu v + g,   X <- X + eta v
 *     adam              Kingma and Ba's, with its usual constants
 *     sign_sgd          X <- X + eta sign(g)
 *     normalized_sgd    X <- X + eta g/|g|_F, by the norm of the whole M x M gradient
 */
import type { Optimizer } from "./setting.ts";

const BETA_1 = 0.9;
const BETA_2 = 0.999;
const EPSILON = 1e-8;

/** A matrix with what its rule remembers; entry i stands for `multiplicity(i)` equal entries of the whole. */
export class Matrix {
  readonly gradient: Float64Array;
  readonly velocity: Float64Array;
  readonly square: Float64Array;
  /** Steps of the present rule. */
  age = 0;

  constructor(
    readonly values: Float64Array,
    readonly multiplicity: (i: number) => number = () => 1,
  ) {
    this.gradient = new Float64Array(values.length);
    this.velocity = new Float64Array(values.length);
    this.square = new Float64Array(values.length);
  }

  /** Move along `gradient`, the gradient by each entry, and clear it. */
  move(optimizer: Optimizer, rate: number, momentum: number): void {
    const { values, gradient: g, velocity, square, multiplicity } = this;
    this.age += 1;
    if (optimizer === "sgd") {
      for (let i = 0; i < values.length; i++) {
        velocity[i] = momentum * velocity[i] + g[i];
        values[i] += rate * velocity[i];
      }
    } else if (optimizer === "adam") {
      const first = rate / (1 - BETA_1 ** this.age), second = 1 / Math.sqrt(1 - BETA_2 ** this.age);
      for (let i = 0; i < values.length; i++) {
        velocity[i] = BETA_1 * velocity[i] + (1 - BETA_1) * g[i];
        square[i] = BETA_2 * square[i] + (1 - BETA_2) * g[i] * g[i];
        values[i] += (first * velocity[i]) / (Math.sqrt(square[i]) * second + EPSILON);
      }
    } else if (optimizer === "sign_sgd") {
      for (let i = 0; i < values.length; i++) values[i] += rate * Math.sign(g[i]);
    } else {
      let norm = 0;
      for (let i = 0; i < values.length; i++) norm += multiplicity(i) * g[i] * g[i];
      if (norm > 0) {
        const step = rate / Math.sqrt(norm);
        for (let i = 0; i < values.length; i++) values[i] += step * g[i];
      }
    }
    g.fill(0);
  }

  /** Forget what was remembered: another rule begins. */
  forget(): void {
    this.velocity.fill(0);
    this.square.fill(0);
    this.age = 0;
  }
}
