/**
 * What the paper predicts for a setting, in its published form and in the exact one: the functions of the library's
 * `theory` that are drawn over a run.  Time is in steps of batch 1 with K classes, so a class is drawn once in K steps.
 *
 *     exp(M h) + (M - 1) M h = M eta_Y t + 1,         h at t/K                                      (Lemma 6, Eq. 45)
 *     t'_0 = K ln M/eta_Y,      t_0 = 2 (1 + omega_1) t'_0                                                 (Theorem 4)
 *     Gamma = (eta_Z/eta_Y) K (M - 1)^2 h^2/2                                                               (Eq. 128)
 *     chi = exp(2 f^2(0) B_n),  B_n = 1/4 ln(C_0 + 4 Gamma),       C_0 = 1/(K o^2)                         (published)
 *     chi = exp(2 f^2(0) B_n/K),  B_n = 1/4 ln(1 + 4 Gamma/C_0),   C_0 = 1/((K - 1) o^2)                       (exact)
 *
 * with o the overlap f_n . f_n' of two classes at the start and f(0) the dominant token's entry of f_n.  The second C_0
 * is of leading order in o.
 */
import { isDistinct, queries, type Classes } from "./classes.ts";
import { makeLayout } from "./layout.ts";
import type { Setting } from "./setting.ts";
import { makeStart } from "./start.ts";

/** A formula as it is, and as the paper prints it, at time t in steps. */
export interface Forms {
  published: (t: number) => number;
  exact: (t: number) => number;
}

export interface Theory {
  /** What the theorems assume and this setting does not have, in sentences; null if nothing. */
  why: string | null;
  /** Theorem 3: the token that wins among the distinct tokens of each class, as an index into `classes.tokens`; null
   * where two are level, or there is none. */
  predictedWinner: (number | null)[];
  /**
   * The decoder's growth, of which a class's own next token has (M - 1) times as logit and leads the others by M times:
   * Lemma 6's h, and h* step by step (Eq. 33) with the rate eta_Y/K of an expected update.
   */
  decoderGrowth: Forms | null;
  /** Theorem 4: chi = exp(2 (z(t) - z(0))) of a class's dominant token. */
  growthFactor: Forms | null;
  /** Theorem 4's phase times: attention scans up to the first and has snapped from the second on. */
  scanEnd: number | null;
  snapStart: number | null;
}

const LEVEL = 1e-12;
const SYMMETRY = 1e-9;
/** Steps beyond which h* is taken for h: they differ by less than 1e-6 of h there. */
const MOST_STEPS = 1 << 20;

export function theory(setting: Setting): Theory {
  const { classes, lrY } = setting, size = classes.vocabSize, count = classes.query.length;
  const shared = sharedOverlap(classes);
  const learns = lrY > 0;
  const h = (t: number) => decoderGrowth(t / count, size, lrY);
  return {
    why: reasons(setting, typeof shared === "string" ? shared : null),
    predictedWinner: winners(setting),
    decoderGrowth: learns ? { published: h, exact: growthBySteps(size, lrY / count) } : null,
    growthFactor: learns && typeof shared !== "string" ? growthFactors(setting, shared, h) : null,
    scanEnd: learns ? (count * Math.log(size)) / lrY : null,
    snapStart: learns && size >= 4 ? (2 * (1 + lateCrossing(size)) * count * Math.log(size)) / lrY : null,
  };
}

function growthFactors({ classes, lrY, lrZ }: Setting, { overlap, share }: Shared, h: (t: number) => number): Forms {
  const size = classes.vocabSize, count = classes.query.length;
  const accumulated = (t: number) => ((lrZ / lrY) * count * (size - 1) ** 2 * h(t) ** 2) / 2;
  const published = 1 / (count * overlap ** 2), exact = 1 / ((count - 1) * overlap ** 2);
  return {
    published: (t) => Math.exp((share * Math.log(published + 4 * accumulated(t))) / 2),
    exact: (t) => Math.exp(((share / count) * Math.log1p((4 * accumulated(t)) / exact)) / 2),
  };
}

/** h(t): with y = M h, expm1(y) + (M - 1) y = s = M eta_Y t.  The left side is convex, so Newton's method falls to the
 * root from above, where min(s/M, ln(1 + s)) is. */
export function decoderGrowth(t: number, size: number, rate: number): number {
  const s = size * rate * t;
  let y = Math.min(s / size, Math.log1p(s));
  for (let i = 0; i < 100; i++) {
    const next = y - (Math.expm1(y) + (size - 1) * y - s) / (Math.exp(y) + size - 1);
    if (!(next < y)) break;
    y = next;
  }
  return y / size;
}

/** h* after whole steps, computed once and as far as asked for. */
function growthBySteps(size: number, rate: number): (t: number) => number {
  const h = [0];
  return (t) => {
    const step = Math.floor(t);
    if (step >= MOST_STEPS) return decoderGrowth(t, size, rate);
    while (h.length <= step) {
      const last = h[h.length - 1];
      h.push(last + rate / (size - 1 + Math.exp(size * last)));
    }
    return h[step];
  };
}

/** omega_1 of Lemma 8: y = (1 + omega_1) ln M is the larger root of y - ln y = ln(M - 1), by Newton's method from above. */
export function lateCrossing(size: number): number {
  const target = Math.log(size - 1);
  let y = 2 * target + 2;
  for (let i = 0; i < 100; i++) {
    const next = y - (y - Math.log(y) - target) / (1 - 1 / y);
    if (!(next < y)) break;
    y = next;
  }
  return y / Math.log(size) - 1;
}

/** Theorem 3's winner: the distinct token of a class that is ahead in P(l|n) exp(z_l) at the start. */
function winners(setting: Setting): (number | null)[] {
  const { classes } = setting, distinct = isDistinct(classes), tokens = classes.tokens.length;
  const start = makeStart(makeLayout({ ...setting, residual: false, normalization: "l2" }), setting.init, setting.seed);
  const row = queries(classes);
  return classes.probs.map((probs, n) => {
    const first = row.indexOf(classes.query[n]) * tokens;
    const own = [...probs.keys()].filter((l) => probs[l] > 0 && distinct[l]);
    const score = (l: number) => Math.log(probs[l]) + start.attentionLogits[first + l];
    own.sort((a, b) => score(b) - score(a));
    if (own.length === 0 || (own.length > 1 && score(own[0]) - score(own[1]) <= LEVEL)) return null;
    return own[0];
  });
}

/** What Theorem 4 takes from classes that are alike: the overlap of two at the start, and f^2(0) of the dominant token. */
interface Shared {
  overlap: number;
  share: number;
}

/** The same, or a sentence that says why Theorem 4 is not about these classes. */
function sharedOverlap(classes: Classes): Shared | string {
  const distinct = isDistinct(classes), common = distinct.filter((alone) => !alone).length, count = classes.query.length;
  const about = "Theorem 4's growth factor is about one query, and one common token that classes alike share";
  if (count < 2) return `${about}: here there is one class.`;
  if (queries(classes).length > 1) return `${about}: here there are ${queries(classes).length} queries.`;
  if (common !== 1) return `${about}: here there are ${common === 0 ? "no" : common} common tokens.`;
  const place = distinct.indexOf(false);
  const sorted = classes.probs.map((row) => row.filter((p, l) => distinct[l] && p > 0).sort((a, b) => a - b));
  const alike = (a: number, b: number) => Math.abs(a - b) <= SYMMETRY;
  const same = classes.probs.every((row) => alike(row[place], classes.probs[0][place]))
    && sorted.every((row) => row.length === sorted[0].length && row.every((p, i) => alike(p, sorted[0][i])))
    && classes.weights.every((weight) => alike(weight, classes.weights[0]));
  if (!same || sorted[0].length === 0) return `${about}: here the classes differ.`;
  const square = classes.probs[0].reduce((sum, p) => sum + p * p, 0);
  return { overlap: classes.probs[0][place] ** 2 / square, share: Math.max(...sorted[0]) ** 2 / square };
}

/** What the theorems assume and this setting does not have. */
function reasons(setting: Setting, other: string | null): string | null {
  const { lrY, lrZ } = setting;
  const unmet = [
    lrY < 10 * lrZ ? `η_Y ≫ η_Z (here η_Y/η_Z = ${+(lrY / lrZ).toPrecision(3)})` : null,
    setting.decoderGradient === "true" ? "Lemma 3's decoder gradient (here true SGD's)" : null,
    setting.optimizer !== "sgd" || setting.momentum > 0 ? "plain SGD" : null,
    setting.seqLen !== null ? `T → ∞ (here T = ${setting.seqLen})` : null,
    setting.init !== "zeros" ? "a zero start" : null,
    setting.residual ? "no residual connection" : null,
    setting.normalization !== "l2" ? "ℓ2 normalization" : null,
  ].filter((words) => words !== null);
  const assumed = unmet.length ? `The theorems assume ${unmet.join(", ")}.` : null;
  return [other, assumed].filter((words) => words !== null).join(" ") || null;
}
