/** Which phase a run is in, in words, by the library's definition of a snap. */
import { isDistinct, type Classes } from "./classes.ts";
import type { Frame } from "./run.ts";
import { findSnap, type Snap } from "./snap.ts";

export interface Phase {
  name: "start" | "scanning" | "snapping" | "snapped" | "diverged";
  /** "scanning: common tokens are losing", "snapped at step 206". */
  words: string;
  /** When the last class snapped. */
  step?: number;
}

/** Below this share of its fastest, attention is said to be snapping. */
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
    const before = this.#frames[this.#frames.length - 1], tokens = this.#classes.tokens.length;
    this.#frames.push(frame);
    this.#moved.push(this.#classes.query.map((_, n) => {
      let sum = 0;
      for (let i = n * tokens; before && i < (n + 1) * tokens; i++) sum += Math.abs(frame.attention[i] - before.attention[i]);
      return before ? sum / 2 : NaN;
    }));
  }

  /** The snap of each class. */
  snaps(): Snap[] {
    const steps = this.#frames.map(({ step }) => step);
    return this.#classes.query.map((_, n) => findSnap(steps, this.#moved.map((moved) => moved[n])));
  }

  phase(): Phase {
    const last = this.#frames[this.#frames.length - 1];
    if (last && Number.isNaN(last.loss)) return { name: "diverged", words: `diverged by step ${last.step}` };
    const snaps = this.snaps(), moving = snaps.filter(({ status }) => status === "not yet");
    const frozen = snaps.filter(({ status }) => status === "frozen");
    if (moving.length === 0 && frozen.length > 0) {
      const step = Math.max(...frozen.map((snap) => snap.step!));
      return { name: "snapped", words: `snapped at step ${step.toLocaleString("en-US")}`, step };
    }
    if (moving.length === 0) return { name: "start", words: "start: attention has hardly moved" };
    const pace = moving.reduce((sum, snap) => sum + snap.pace, 0) / moving.length;
    if (frozen.length > 0 || pace < SLOW) {
      const share = `attention moves at ${Math.round(100 * pace)}% of its fastest`;
      const some = `${frozen.length} of ${snaps.length} classes have snapped`;
      return { name: "snapping", words: `snapping: ${frozen.length > 0 ? some : share}` };
    }
    return { name: "scanning", words: `scanning: ${this.#race()}` };
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
