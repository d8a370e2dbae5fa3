/** An axis: numbers to places between 0 and 1, and where to put ticks. */

export interface Tick {
  place: number;
  label: string;
}

export class Axis {
  constructor(
    readonly least: number,
    readonly most: number,
    readonly log: boolean,
  ) {}

  place(value: number): number {
    if (!this.log) return (value - this.least) / (this.most - this.least);
    return Math.log(value / this.least) / Math.log(this.most / this.least);
  }

  /** The number at a place. */
  at(place: number): number {
    if (!this.log) return this.least + place * (this.most - this.least);
    return this.least * (this.most / this.least) ** place;
  }

  /** About `count` ticks at round numbers. */
  ticks(count: number): Tick[] {
    const values = this.log ? this.powers(count) : this.rounds(count);
    return values.map((value) => ({ place: this.place(value), label: numberLabel(value) }));
  }

  private rounds(count: number): number[] {
    const step = roundUp((this.most - this.least) / Math.max(1, count));
    const values: number[] = [];
    for (let i = Math.ceil(this.least / step - 1e-9); i * step <= this.most + step * 1e-9; i++) values.push(i * step);
    return values;
  }

  private powers(count: number): number[] {
    const first = Math.ceil(Math.log10(this.least) - 1e-9);
    const last = Math.floor(Math.log10(this.most) + 1e-9);
    if (last - first < 1) {
      const between = [1, 2, 5].flatMap((digit) =>
        [first - 1, first, last, last + 1].map((power) => digit * 10 ** power),
      );
      return [...new Set(between)]
        .filter((value) => value >= this.least * 0.999 && value <= this.most * 1.001)
        .sort((a, b) => a - b);
    }
    const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, count)));
    return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => 10 ** (first + i * every));
  }
}

/** Time from the start to `end`; in logarithmic time the start stands at step 1. */
export function timeAxis(end: number, log: boolean): Axis {
  return log ? new Axis(1, Math.max(end, 10), true) : new Axis(0, Math.max(end, 1), false);
}

/** The next of 1, 2, 5 times a power of ten. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5].find((digit) => digit * power >= value * (1 - 1e-9)) ?? 10);
}

export function numberLabel(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const power = Math.round(Math.log10(size));
  if (size >= 1e5 || size < 1e-3) {
    const exponent = Math.abs(Math.log10(size) - power) < 1e-9 ? power : Math.floor(Math.log10(size));
    const digits = value / 10 ** exponent;
    const raised = `10${[...String(exponent)].map((sign) => SUPERSCRIPT[sign] ?? sign).join("")}`;
    return Math.abs(digits - 1) < 1e-9 ? raised : `${Number(digits.toPrecision(2))}·${raised}`;
  }
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 4 });
}

const SUPERSCRIPT: Record<string, string> = {
  "-": "⁻",
  "0": "⁰",
  "1": "¹",
  "2": "²",
  "3": "³",
  "4": "⁴",
  "5": "⁵",
  "6": "⁶",
  "7": "⁷",
  "8": "⁸",
  "9": "⁹",
};
