/** The main picture, one for each class: a row for each token with its attention now as a bar, and its past beside it. */
import { type Frame, type Theory } from "../engine/index.ts";
import { roundUp } from "./axis.ts";
import { type ClassRows, type History, winner } from "./history.ts";
import type { Palette } from "./palette.ts";
import type { Pen } from "./pen.ts";
import { type Box, type Scene, phaseTimes } from "./scene.ts";

const TOP = 20;
const BOTTOM = 20;
/** The width of the scale of shades. */
const LEGEND = 84;
/** Narrower pictures, of which there are many, have no names. */
const SMALL = 280;

/** The height that a class wants. */
export function attentionHeight(rows: ClassRows, width: number): number {
  const count = Math.max(3, rows.rows.length);
  if (width < SMALL) return TOP + BOTTOM + count * 6;
  const each = Math.min(width < 420 ? 22 : 27, Math.max(11, (width < 420 ? 290 : 340) / count));
  return TOP + BOTTOM + count * each;
}

/** The past of one class as an image, a column for each pixel of time and a row for each token. */
export class HeatMap {
  readonly canvas = document.createElement("canvas");
  private drawnKey = "";
  private drawnColumns = 0;

  update(scene: Scene, rows: ClassRows, columns: number): void {
    const { time, history, palette } = scene;
    const height = rows.rows.length;
    const width = Math.max(1, Math.floor(columns));
    const key = [
      width,
      height,
      time.least,
      time.most,
      time.log,
      history.thinned,
      palette.paper,
      rows.rows[0]?.name,
    ].join();
    if (key !== this.drawnKey || history.frames.length === 1) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.drawnKey = key;
      this.drawnColumns = 0;
    }
    const reached = Math.min(width, Math.ceil(Math.max(0, time.place(history.last.step)) * width));
    const first = Math.max(0, this.drawnColumns - 1);
    const count = Math.max(reached, 1) - first;
    const context = this.canvas.getContext("2d");
    if (count <= 0 || height === 0 || !context) return;
    const image = context.createImageData(count, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let column = 0; column < count; column++) {
      const frame = history.frames[history.indexAt(time.at((first + column + 1) / width))];
      paintColumn(pixels, column, count, rows, frame, scene);
    }
    context.putImageData(image, first, 0);
    this.drawnColumns = reached;
  }
}

function paintColumn(
  pixels: Uint32Array,
  column: number,
  width: number,
  rows: ClassRows,
  frame: Frame,
  scene: Scene,
): void {
  const { ramps } = scene.palette;
  const start = rows.index * scene.classes.tokens.length;
  rows.rows.forEach((row, y) => {
    const value = frame.attention[start + row.token];
    pixels[y * width + column] = ramps[row.kind][shadeOf(value)];
  });
}

/** The place of a share of attention on a ramp: its square root, so that small shares can be told from none. */
function shadeOf(share: number): number {
  return Number.isFinite(share) ? Math.min(255, Math.round(255 * Math.sqrt(Math.max(0, share)))) : 0;
}

/** The shares that shades stand for, from 0 to 1: distinct tokens above, common ones below. */
function drawShades(pen: Pen, x: number, y: number, palette: Palette): void {
  const strip = LEGEND - 22, steps = 32;
  for (let i = 0; i < steps; i++) {
    const shade = shadeOf(i / (steps - 1));
    const left = x + 12 + (i * strip) / steps;
    pen.rect(left, y - 6, strip / steps + 0.5, 6, palette.shades.distinct[shade]);
    pen.rect(left, y, strip / steps + 0.5, 6, palette.shades.common[shade]);
  }
  const style = { color: palette.soft, size: 11 };
  pen.text(x, y, "0", style);
  pen.text(x + strip + 16, y, "1", style);
}

/** The end of the bars' scale: a round number that holds the largest share so far. */
export function barScale(history: History, known: number): number {
  let largest = known;
  for (const value of history.last.attention) if (value > largest) largest = value;
  return largest > known ? Math.min(1, roundUp(largest)) : known;
}

/** Where the parts of the picture stand, from left to right. */
export function columnsOf(box: Box): { label: number; bars: Box; past: Box } {
  const label = box.width < SMALL ? 14 : Math.min(120, Math.max(58, box.width * 0.17));
  const bars = Math.max(60, (box.width - label) * (box.width < 420 ? 0.42 : 0.4));
  const y = box.y + TOP;
  const height = box.height - TOP - BOTTOM;
  return {
    label,
    bars: { x: box.x + label, y, width: bars - 14, height },
    past: { x: box.x + label + bars, y, width: box.width - label - bars - 6, height },
  };
}

export function drawAttention(pen: Pen, box: Box, scene: Scene, rows: ClassRows, heat: HeatMap, most: number): void {
  const { palette, frame } = scene;
  const { label, bars, past } = columnsOf(box);
  const size = box.width < 420 ? 11 : 12;
  const each = bars.height / Math.max(1, rows.rows.length);
  const width = scene.classes.tokens.length;
  const leader = winner(rows, frame.attention, width);

  pen.text(bars.x, box.y + 8, box.width < SMALL ? "now" : "attention now", {
    color: palette.soft,
    size: 11,
    room: bars.width,
  });
  const legend = past.width >= LEGEND + (scene.time.log ? 100 : 70) ? LEGEND : 0;
  pen.text(past.x, box.y + 8, scene.time.log ? "over time (log) →" : "over time →", {
    color: palette.soft,
    size: 11,
    room: past.width - legend,
  });
  if (legend) drawShades(pen, past.x + past.width - legend, box.y + 8, palette);
  drawScale(pen, bars, most, palette, box.y + box.height - 9);

  rows.rows.forEach((row, i) => {
    const y = bars.y + i * each;
    const value = frame.attention[rows.index * width + row.token];
    const share = Number.isFinite(value) ? value : 0;
    const color = palette[row.kind];
    const leads = leader?.row === row;
    if (row.kind === "common" && rows.rows[i - 1]?.kind === "distinct") {
      pen.line([box.x, y, past.x + past.width, y], { color: palette.line });
    }
    drawMark(pen, bars.x - 10, y + each / 2, Math.min(4.2, each * 0.32), row.kind, color);
    const starred = scene.forms !== "none" && isPredicted(scene.theory, rows.index, row.token);
    if (box.width >= SMALL) {
      pen.text(box.x + label - 20, y + each / 2, starred ? `★ ${row.name}` : row.name, {
        color: leads ? palette.ink : palette.soft,
        size: Math.min(each > 20 ? 13 : size, each),
        align: "right",
        weight: leads ? 700 : 400,
        room: label - 22,
      });
    }
    const length = Math.max(1, (share / most) * bars.width);
    pen.rect(bars.x, y + each * 0.1, length, each * 0.8, row.kind === "common" ? { stripes: color } : color);
    const before = bars.x + (row.prob / most) * bars.width;
    if (before <= bars.x + bars.width + 1)
      pen.line([before, y + 1, before, y + each - 1], { color: palette.ink, width: 1.5 });
    if (leads && share > 0.005 && box.width >= SMALL) {
      const inside = length > bars.width - 40;
      pen.text(inside ? bars.x + length - 4 : bars.x + length + 5, y + each / 2, share.toFixed(2), {
        color: inside ? palette.paper : palette.ink,
        size: Math.min(size, each),
        weight: 700,
        align: inside ? "right" : "left",
      });
    }
  });

  pen.rect(past.x, past.y, past.width, past.height, palette.wash);
  heat.update(scene, rows, past.width);
  pen.image(heat.canvas, past.x, past.y, past.width, past.height);
  drawTime(pen, past, box, scene);
}

function drawScale(pen: Pen, bars: Box, most: number, palette: Palette, y: number): void {
  for (const share of [0, 0.5, 1]) {
    const x = bars.x + share * bars.width;
    pen.line([x, bars.y, x, bars.y + bars.height], { color: palette.line });
    pen.text(x, y, String(Number((share * most).toPrecision(2))), {
      color: palette.soft,
      size: 11,
      align: share ? "center" : "left",
    });
  }
}

function drawTime(pen: Pen, past: Box, box: Box, scene: Scene): void {
  const { palette, time } = scene;
  const end = past.x + past.width;
  for (const tick of time.ticks(Math.max(2, past.width / 70))) {
    const x = past.x + tick.place * past.width;
    pen.line([x, past.y + past.height, x, past.y + past.height + 3], { color: palette.soft });
    const align = x > end - 14 ? "right" : x < past.x + 8 ? "left" : "center";
    pen.text(align === "right" ? Math.min(x + 6, end + 4) : x, box.y + box.height - 9, tick.label, {
      color: palette.soft,
      size: 11,
      align,
    });
  }
  for (const mark of phaseTimes(scene)) {
    const x = past.x + time.place(mark.step) * past.width;
    if (x < past.x || x > end) continue;
    pen.line([x, past.y, x, past.y + past.height], { color: palette.theory, width: 1.5, dash: [5, 3] });
    pen.rect(x - 9, past.y + 1, 18, 13, palette.paper);
    pen.text(x, past.y + 8, mark.label, { color: palette.theory, size: 11, align: "center", weight: 700 });
  }
  const now = past.x + Math.min(1, Math.max(0, time.place(scene.frame.step))) * past.width;
  pen.line([now, past.y, now, past.y + past.height], { color: palette.ink, width: scene.live ? 1 : 2 });
}

/** A disk for distinct tokens, an open diamond for common ones. */
function drawMark(pen: Pen, x: number, y: number, radius: number, kind: "common" | "distinct", color: string): void {
  if (kind === "common") {
    const d = radius + 0.5;
    pen.line([x, y - d, x + d, y, x, y + d, x - d, y, x, y - d], { color, width: 1.6 });
    return;
  }
  const points = Array.from({ length: 16 }, (_, i) => [
    x + radius * Math.cos((i * Math.PI) / 8),
    y + radius * Math.sin((i * Math.PI) / 8),
  ]);
  pen.polygon(points.flat(), color);
}

function isPredicted(theory: Theory | null, index: number, token: number): boolean {
  return theory?.predictedWinner[index] === token;
}
