/** What a person can take away: pictures, numbers, the classes file. */
import type { Frame } from "../engine/index.ts";
import { HeatMap, attentionHeight, drawAttention } from "./attention_picture.ts";
import { drawCurves } from "./curve_picture.ts";
import { lossChart, measureChart } from "./curves.ts";
import { drawDecoder } from "./decoder_picture.ts";
import { download } from "./dom.ts";
import { phaseWords } from "./phase_line.ts";
import { CanvasPen, type Pen, SvgPen } from "./pen.ts";
import type { Scene } from "./scene.ts";
import { growthChart } from "./theory_chart.ts";

const WIDTH = 1200;
const GAP = 24;
const CURVES = 210;

/** Draw the shown classes and all curves as one picture; give back its height. */
function drawAll(pen: Pen, scene: Scene, shown: readonly number[], most: number, caption: string): number {
  const { palette } = scene;
  const columns = Math.min(2, shown.length);
  const width = (WIDTH - GAP * (columns + 1)) / columns;
  let y = 20;
  pen.text(GAP, y, phaseWords(scene.phase), { color: palette.ink, size: 16, weight: 700 });
  y += 26;
  for (let i = 0; i < shown.length; i += columns) {
    const line = shown.slice(i, i + columns).map((n) => scene.rows[n]);
    const height = Math.max(...line.map((rows) => attentionHeight(rows, width)));
    line.forEach((rows, j) => {
      const x = GAP + j * (width + GAP);
      pen.text(x, y, `Class ${rows.index + 1}: query ${rows.query}, next token ${rows.next}`, {
        color: palette.ink,
        size: 13,
        weight: 600,
        room: width,
      });
      drawAttention(
        pen,
        { x, y: y + 14, width, height: attentionHeight(rows, width) },
        scene,
        rows,
        new HeatMap(),
        most,
      );
    });
    y += height + 40;
  }
  const growth = growthChart(scene);
  const charts = [lossChart(scene), measureChart(scene), ...(growth ? [growth] : [])];
  const each = (WIDTH - GAP * (charts.length + 2)) / (charts.length + 1);
  charts.forEach((chart, i) =>
    drawCurves(pen, { x: GAP + i * (each + GAP), y, width: each, height: CURVES }, scene, chart),
  );
  drawDecoder(pen, { x: GAP + charts.length * (each + GAP), y, width: each, height: CURVES }, scene);
  y += CURVES + 22;
  pen.text(GAP, y, caption, { color: palette.soft, size: 11, room: WIDTH - 2 * GAP });
  return y + 20;
}

/** Draws nothing; it finds out how high a picture is. */
const BLANK: Pen = { rect() {}, line() {}, polygon() {}, text() {}, image() {} };

export function svgOf(scene: Scene, shown: readonly number[], most: number, caption: string): string {
  const height = drawAll(BLANK, scene, shown, most, caption);
  const pen = new SvgPen(WIDTH, height);
  pen.rect(0, 0, WIDTH, height, scene.palette.paper);
  drawAll(pen, scene, shown, most, caption);
  return pen.svg();
}

export async function downloadPng(
  scene: Scene,
  shown: readonly number[],
  most: number,
  caption: string,
): Promise<void> {
  const height = drawAll(BLANK, scene, shown, most, caption);
  const canvas = document.createElement("canvas");
  const scale = Math.min(2, Math.sqrt(1e8 / (WIDTH * height)));
  canvas.width = Math.round(WIDTH * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser gave no canvas to draw on: export the SVG.");
  context.scale(scale, scale);
  const pen = new CanvasPen(context);
  pen.rect(0, 0, WIDTH, height, scene.palette.paper);
  drawAll(pen, scene, shown, most, caption);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("the picture is too large for this browser: show fewer classes, or export the SVG.");
  download("scansnap.png", blob);
}

/** The states at multiples of the smallest power of two for which none is missing. */
export function evenlySpaced(frames: readonly Frame[]): Frame[] {
  let gap = 1;
  const even = (): Frame[] => frames.filter((frame) => frame.step % gap === 0);
  while (even().some((frame, i) => frame.step !== i * gap)) gap *= 2;
  return even();
}

/** A line for each of the evenly spaced states: loss, accuracy, entropies, and the attention of every class on its tokens. */
export function csvOf(scene: Scene): string {
  const width = scene.classes.tokens.length;
  const header = ["step", "loss", "accuracy", ...scene.rows.map(({ index }) => `entropy of class ${index + 1}`)];
  const columns: number[] = [];
  for (const { index, rows } of scene.rows) {
    for (const row of rows) {
      header.push(`attention of class ${index + 1} on ${row.name}`);
      columns.push(index * width + row.token);
    }
  }
  const lines = evenlySpaced(scene.history.frames).map((frame) =>
    [
      frame.step,
      frame.loss,
      frame.accuracy,
      ...frame.entropy,
      ...columns.map((column) => frame.attention[column]),
    ].join(","),
  );
  return `${[header.map(cell).join(","), ...lines].join("\n")}\n`;
}

/** A name as a cell that a spreadsheet reads as text: quoted, and never as a formula. */
function cell(text: string): string {
  return `"${text.replaceAll('"', '""').replace(/[\r\n]+/g, " ")}"`;
}
