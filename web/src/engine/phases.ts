/** Which phase a run is in, in words, by the library's definition of a snap. */
import { isDistinct, type Classes } from "./classes.ts";
import type { Frame } from "./run.ts";
import { distance, findSnap, type Snap } from "./snap.ts";

export interface Phase {
  name: "start" | "scanning" | "snapping" | "snapped" | "slowed" | "diverged";
  /** "scanning: common tokens are losing", "snapped at step 206, 3% of attention moved since". */
  words: string;
  /** When the last class slowed. */
  step?: number;
}

/** Below this share of its peak speed, attention is said to be snapping. */
const SLOW = 0.5;

/** Steps between the states of a history around this step: 1 up to 255, 2 up to 511, and so on. */
export function recordGap(step: number): number {
  return 2 ** Math.max(0, Math.floor(Math.log2(Math.max(step, 1))) - 7);
}

/**
 * Whether a state is kept in a run's history: at least 128 for each doubling, whatever the speed at which the run is
 * played.
 */
export function isRecorded(step: number): boolean {
  return step % recordGap(step) === 0;
}

/** The phase after a history: states that `isRecorded`, from step 0 on. */
export function phase(history: Frame[], classes: Classes): Phase {
  const watch = new PhaseWatch(classes);
  for (const frame of history) watch.add(frame);
  return watch.phase();
}

/**
 * Follows a run and says its phase.  Of the history it looks at the states at multiples of the present gap, which are
 * what the library records with `record_every` set to this gap.
 */
export class PhaseWatch {
  #frames: Frame[] = [];
  #moved: number[][] = []; // for each frame, the share of attention that each class has moved since the one before
  #gap = 1;
  readonly #classes: Classes;
  readonly #distinct: boolean[];

  constructor(classes: Classes) {
    this.#classes = classes;
    this.#distinct = isDistinct(classes);
  }

  add(frame: Frame): void {
    const gap = recordGap(frame.step);
    if (gap > this.#gap) {
      this.#gap = gap;
      const frames = this.#frames.filter(({ step }) => step % gap === 0);
      this.#frames = [];
      this.#moved = [];
      for (const kept of frames) this.#put(kept);
    }
    if (frame.step % this.#gap === 0) this.#put(frame);
  }

  #put(frame: Frame): void {
    const before = this.#frames[this.#frames.length - 1];
    this.#frames.push(frame);
    this.#moved.push(
      this.#classes.query.map((_, n) => (before ? distance(this.#pattern(before, n), this.#pattern(frame, n)) : NaN)),
    );
  }

  /** The attention of class n. */
  #pattern(frame: Frame, n: number): Float64Array {
    const tokens = this.#classes.tokens.length;
    return frame.attention.subarray(n * tokens, (n + 1) * tokens);
  }

  /** The snap of each class. */
  snaps(): Snap[] {
    const steps = this.#frames.map(({ step }) => step);
    return this.#classes.query.map((_, n) =>
      findSnap(steps, this.#moved.map((moved) => moved[n]), this.#frames.map((frame) => this.#pattern(frame, n))),
    );
  }

  phase(): Phase {
    const last = this.#frames[this.#frames.length - 1];
    if (last && Number.isNaN(last.loss)) return { name: "diverged", words: `diverged by step ${last.step}` };
    const snaps = this.snaps(), moving = snaps.filter(({ status }) => status === "not yet");
    const frozen = snaps.filter(({ status }) => status === "frozen");
    const slow = snaps.filter(({ step }) => step !== null);
    if (moving.length === 0 && slow.length > 0) return this.#stopped(slow);
    if (moving.length === 0) return { name: "start", words: "start: attention has hardly moved" };
    const pace = moving.reduce((sum, snap) => sum + snap.pace, 0) / moving.length;
    if (frozen.length > 0 || pace < SLOW) {
      const share = `attention moves at ${Math.round(100 * pace)}% of its peak speed`;
      const some = `${frozen.length} of ${snaps.length} classes have snapped`;
      return { name: "snapping", words: `snapping: ${frozen.length > 0 ? some : share}` };
    }
    return { name: "scanning", words: `scanning: ${this.#race()}` };
  }

  /** All that moved have slowed: when, and whether they stayed.  What happens between two looks is seen at the second. */
  #stopped(snaps: Snap[]): Phase {
    const step = Math.max(...snaps.map((snap) => snap.step!));
    const left = snaps.filter(({ status }) => status === "slowed");
    const most = (left.length > 0 ? left : snaps).reduce((one, other) => (other.since! > one.since! ? other : one));
    const name = left.length > 0 ? "slowed" : "snapped";
    const at = step.toLocaleString("en-US");
    const when = this.#gap === 1 ? `at step ${at}` : `by step ${at} (checked every ${this.#gap} steps)`;
    return { name, words: `${name} ${when}, ${Math.round(100 * most.since!)}% of attention moved since`, step };
  }

  /** Who gains attention between the last two states. */
  #race(): string {
    const [before, last] = this.#frames.slice(-2), tokens = this.#classes.tokens.length;
    let gain = 0;
    for (let i = 0; i < last.attention.length; i++) {
      if (!this.#distinct[i % tokens]) gain += last.attention[i] - before.attention[i];
    }
    if (gain === 0) return "distinct tokens compete";
    return gain < 0 ? "common tokens are losing" : "common tokens are gaining";
  }
}
