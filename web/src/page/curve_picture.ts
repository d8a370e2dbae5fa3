/** Curves over time: loss, entropy, the growth factor with theory on top. */
import type { Axis } from "./axis.ts";
import type { Pen, Stroke } from "./pen.ts";
import { type Box, type Scene, phaseTimes } from "./scene.ts";

export interface Curve {
  label: string;
  stroke: Stroke;
  /** Pairs of step and value. */
  steps: ArrayLike<number>;
  values: ArrayLike<number>;
}

export interface CurveChart {
  title: string;
  vertical: Axis;
  curves: Curve[];
  /** Said in place of curves that have no numbers. */
  missing?: string;
}

const LEFT = 44;

export function plotBox(box: Box): Box {
  return { x: box.x + LEFT, y: box.y + 34, width: box.width - LEFT - 8, height: box.height - 34 - 20 };
}

/** `titled` is false where the page has the title beside the picture. */
export function drawCurves(pen: Pen, box: Box, scene: Scene, chart: CurveChart, titled = true): void {
  const { palette, time } = scene;
  const plot = plotBox(box);
  const bottom = plot.y + plot.height;
  if (titled) pen.text(box.x, box.y + 8, chart.title, { color: palette.ink, size: 12, weight: 600 });
  for (const tick of chart.vertical.ticks(Math.max(2, plot.height / 34))) {
    const y = bottom - tick.place * plot.height;
    if (y < plot.y - 1 || y > bottom + 1) continue;
    pen.line([plot.x, y, plot.x + plot.width, y], { color: palette.line });
    pen.text(plot.x - 5, y, tick.label, { color: palette.soft, size: 11, align: "right" });
  }
  for (const tick of time.ticks(Math.max(2, plot.width / 70))) {
    const x = plot.x + tick.place * plot.width;
    pen.line([x, bottom, x, bottom + 3], { color: palette.soft });
    const align = x > plot.x + plot.width - 14 ? "right" : x < plot.x + 8 ? "left" : "center";
    pen.text(align === "right" ? x + 6 : x, bottom + 11, tick.label, { color: palette.soft, size: 11, align });
  }
  for (const mark of phaseTimes(scene)) {
    const x = plot.x + time.place(mark.step) * plot.width;
    if (x < plot.x || x > plot.x + plot.width) continue;
    pen.line([x, plot.y, x, bottom], { color: palette.theory, width: 1.5, dash: [5, 3] });
    pen.text(x + 3, bottom - 8, mark.label, { color: palette.theory, size: 11, weight: 600 });
  }
  for (const curve of chart.curves) pen.line(pointsOf(curve, time, chart.vertical, plot), curve.stroke);
  const now = plot.x + Math.min(1, Math.max(0, time.place(scene.frame.step))) * plot.width;
  pen.line([now, plot.y, now, bottom], { color: palette.soft, width: scene.live ? 1 : 2 });
  if (chart.missing) {
    const middle = { x: plot.x + plot.width / 2, y: plot.y + plot.height / 2 };
    pen.text(middle.x, middle.y, chart.missing, { color: palette.soft, size: 11, align: "center" });
  } else drawLegend(pen, box, scene, chart.curves);
}

function drawLegend(pen: Pen, box: Box, scene: Scene, curves: Curve[]): void {
  let x = box.x + box.width - 8;
  const y = box.y + 24;
  for (const curve of [...curves].reverse()) {
    if (!curve.label) continue;
    const width = curve.label.length * 6.4;
    pen.text(x, y, curve.label, { color: scene.palette.soft, size: 11, align: "right" });
    pen.line([x - width - 22, y, x - width - 6, y], curve.stroke);
    x -= width + 32;
  }
}

/** Places of a curve's points, at most two for each pixel. */
function pointsOf(curve: Curve, time: Axis, vertical: Axis, plot: Box): number[] {
  const points: number[] = [];
  let last = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < curve.steps.length; i++) {
    const place = time.place(Math.max(curve.steps[i], time.least));
    const x = plot.x + place * plot.width;
    if (place > 1.0001 || (x - last < 0.5 && i < curve.steps.length - 1)) continue;
    last = x;
    const height = vertical.place(curve.values[i]);
    const drawn = Number.isFinite(height) && !(vertical.log && height < 0);
    points.push(x, drawn ? plot.y + plot.height * (1 - Math.min(1.02, Math.max(-0.02, height))) : Number.NaN);
  }
  return points;
}
