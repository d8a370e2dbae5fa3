/** Which curves a run has: loss, the chosen measure of attention, and the growth factor under theory. */
import { Axis, roundUp } from "./axis.ts";
import type { Curve, CurveChart } from "./curve_picture.ts";
import { mean } from "./history.ts";
import type { Scene } from "./scene.ts";
import type { Measure } from "./state.ts";

export const MEASURE_LABELS: Record<Measure, string> = {
  entropy: "Entropy of attention (nats)",
  share: "Largest share of attention",
  recall: "Distinct tokens above 1/M",
};

export const MEASURE_TIPS: Record<Measure, string> = {
  entropy: "How widely attention is spread over a class’s distinct tokens: 0 is one token alone (Figure 6).",
  share: "How much of a class’s attention its favorite token has.",
  recall: "The share of a class’s distinct tokens that still get more attention than 1/M (Figures 11 and 12).",
};

const MOST_THIN_LINES = 10;

export function lossChart(scene: Scene): CurveChart {
  const { history, palette } = scene;
  const steps = history.frames.map((frame) => frame.step);
  const values = history.frames.map((frame) => frame.loss);
  const top = roundUp(Math.max(...values.filter(Number.isFinite), 1e-3));
  return {
    title: "Loss (nats)",
    vertical: new Axis(0, top, false),
    curves: [{ label: "", stroke: { color: palette.ink, width: 2 }, steps, values }],
  };
}

export function measureChart(scene: Scene): CurveChart {
  const { history, palette, measure } = scene;
  const steps = history.frames.map((frame) => frame.step);
  const byClass = history.frames.map((_, i) => measured(scene, i));
  const curves: Curve[] = [];
  const count = scene.rows.length;
  if (count > 1 && count <= MOST_THIN_LINES) {
    for (let n = 0; n < count; n++) {
      curves.push({ label: "", stroke: { color: palette.line, width: 1 }, steps, values: byClass.map((values) => values[n]) });
    }
  }
  const means = byClass.map(mean);
  curves.push({ label: count > 1 ? "mean of classes" : "", stroke: { color: palette.distinct, width: 2 }, steps, values: means });
  const top = measure === "entropy" ? Math.max(0.5, ...means.filter(Number.isFinite)) * 1.08 : 1;
  return { title: MEASURE_LABELS[measure], vertical: new Axis(0, top, false), curves };
}

/** The measure of each class at one record. */
function measured(scene: Scene, record: number): ArrayLike<number> {
  const frame = scene.history.frames[record];
  if (scene.measure === "entropy") return frame.entropy;
  const width = scene.classes.tokens.length;
  return scene.rows.map(({ index, rows }) => {
    const shares = rows.filter((row) => scene.measure === "share" || row.kind === "distinct").map((row) => frame.attention[index * width + row.token]);
    if (scene.measure === "share") return Math.max(...shares);
    return shares.length ? shares.filter((share) => share > 1 / scene.classes.vocabSize).length / shares.length : Number.NaN;
  });
}
