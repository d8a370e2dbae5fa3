/**
 * Has a pattern of attention slowed, when, and has it stayed there?  The library's definition (`results/snap.py`).
 *
 * Between records i - 1 and i a share m_i of the attention moves, at the rate m_i/(steps between).  A pattern has slowed
 * at record i if every rate after it is at most `FROZEN` of the peak rate, for at least `WATCHED` records that cover at
 * least a fifth of the steps.  A pattern that moved less than `MOVED` in all has hardly moved.  It has frozen if it got
 * no farther from there than `STAYED` of how far it had got from its start.
 */
const FROZEN = 0.1;
const WATCHED = 3;
const COVERED = 0.2;
const MOVED = 0.05;
const STAYED = 0.2;

export interface Snap {
  /** When it slowed; null if it has not. */
  step: number | null;
  status: "frozen" | "slowed" | "not yet" | "hardly moved" | "too short";
  /** The last rate as a share of the peak rate. */
  pace: number;
  /** Shares of attention that moved from the start to the snap, and since. */
  until?: number;
  since?: number;
}

/** Half the l1 distance between two patterns: the share of attention that moved. */
export function distance(from: ArrayLike<number>, to: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < from.length; i++) sum += Math.abs(to[i] - from[i]);
  return sum / 2;
}

/**
 * The snap of a pattern whose share moved[i] moved between steps[i - 1] and steps[i]; moved[0] is not read.
 *
 * Without the patterns themselves one that has slowed counts as frozen.
 */
export function findSnap(
  steps: ArrayLike<number>,
  moved: ArrayLike<number>,
  patterns?: readonly ArrayLike<number>[],
): Snap {
  const ends: number[] = [], gaps: number[] = [], parts: number[] = [];
  for (let i = 1; i < steps.length; i++) {
    if (!Number.isFinite(moved[i])) continue; // a diverged run has no more records
    ends.push(steps[i]);
    gaps.push(steps[i] - steps[i - 1]);
    parts.push(moved[i]);
  }
  const last = parts.length - 1;
  if (last > 0 && gaps[last] < gaps[last - 1] / 2) for (const list of [ends, gaps, parts]) list.pop();
  const count = parts.length;
  if (count <= WATCHED) return { step: null, status: "too short", pace: 1 };
  const rates = parts.map((part, i) => part / gaps[i]);
  const peak = Math.max(...rates);
  const pace = peak > 0 ? rates[count - 1] / peak : 1;
  if (parts.reduce((sum, part) => sum + part, 0) < MOVED) return { step: null, status: "hardly moved", pace };
  let fast = count - 1; // the last record that is not quiet
  while (!(rates[fast] > FROZEN * peak)) fast--;
  const quiet = count - 1 - fast;
  if (quiet < WATCHED || ends[count - 1] - ends[fast] < COVERED * (ends[count - 1] - steps[0])) {
    return { step: null, status: "not yet", pace };
  }
  const step = ends[fast];
  if (!patterns) return { step, status: "frozen", pace };
  const snap = Array.prototype.indexOf.call(steps, step);
  const farthest = (from: ArrayLike<number>, among: readonly ArrayLike<number>[]) =>
    Math.max(...among.map((pattern) => distance(from, pattern)).filter((far) => !Number.isNaN(far)));
  const until = farthest(patterns[0], patterns.slice(0, snap + 1));
  const since = farthest(patterns[snap], patterns.slice(snap));
  return { step, status: since > STAYED * until ? "slowed" : "frozen", pace, until, since };
}
