/** What a run has been through: one record for each state that the engine keeps, and the rows that pictures show. */
import { type Classes, type Frame, kinds, name } from "../engine/index.ts";

/** One token of a class: a row of its picture. */
export interface Row {
  /** Index into `classes.tokens`. */
  token: number;
  name: string;
  kind: "common" | "distinct";
  prob: number;
}

/** A class as it is drawn. */
export interface ClassRows {
  index: number;
  query: string;
  next: string;
  rows: Row[];
  /** Rows beyond the limit, which are not drawn. */
  hidden: number;
}

const MOST_ROWS = 60;

/** The rows of each class as the library's pictures have them: common tokens below, ids upward. */
export function classRows(classes: Classes): ClassRows[] {
  const roles = kinds(classes);
  return classes.query.map((query, index) => {
    const probs = classes.probs[index];
    const all = classes.tokens.map((_, token) => token).filter((token) => probs[token] > 0);
    const shown = all.length <= MOST_ROWS ? all : [...all].sort((a, b) => probs[b] - probs[a]).slice(0, MOST_ROWS);
    const rows = shown
      .map((token) => ({ token, name: name(classes, classes.tokens[token]), kind: roles[token], prob: probs[token] }))
      .sort((a, b) => Number(a.kind === "common") - Number(b.kind === "common") || b.token - a.token);
    return {
      index,
      query: name(classes, query),
      next: name(classes, classes.nextToken[index]),
      rows,
      hidden: all.length - rows.length,
    };
  });
}

const MOST_BYTES = 150e6;

export class History {
  frames: Frame[] = [];
  /** Grows whenever states are forgotten, so that pictures know to draw all again. */
  thinned = 0;

  /** A state; one that is not later than the last known is known already. */
  add(frame: Frame): void {
    if (this.frames.length > 0 && frame.step <= this.last.step) return;
    this.frames.push(frame);
    const bytes = 8 * (frame.attention.length + frame.attentionLogits.length + frame.decoder.length);
    if (this.frames.length > 64 && this.frames.length * bytes > MOST_BYTES) {
      const end = this.frames.length - 1;
      this.frames = this.frames.filter((_, i) => i % 2 === 0 || i === end);
      this.thinned++;
    }
  }

  get last(): Frame {
    return this.frames[this.frames.length - 1];
  }

  /** The index of the last state at or before a step. */
  indexAt(step: number): number {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].step <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** The row of a class that attention is largest on. */
export function winner(rows: ClassRows, attention: Float64Array, width: number): { row: Row; share: number } | null {
  let best: Row | null = null;
  let share = -1;
  for (const row of rows.rows) {
    const value = attention[rows.index * width + row.token];
    if (value > share) [best, share] = [row, value];
  }
  return best && { row: best, share };
}

/** Mean over classes of those entries that are numbers. */
export function mean(values: ArrayLike<number>): number {
  let sum = 0;
  let count = 0;
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i])) continue;
    sum += values[i];
    count++;
  }
  return count ? sum / count : Number.NaN;
}
