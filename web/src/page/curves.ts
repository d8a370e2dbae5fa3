/** Which curves a run has: loss, and the chosen measure of attention; each beside those of a run that was kept. */
import { type Frame, queries } from "../engine/index.ts";
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
  share: "The share of a class’s attention that its most attended token has.",
  recall:
    "The share of a class’s distinct tokens whose softmax of z is above 1/M, where all begin (Figures 11 and 12).",
};

export const NO_DISTINCT = "Classes share every token: none is distinct.";

const MOST_THIN_LINES = 10;

/** The curve of the run that was kept, if there is one: gray and dashed under the present one. */
export function keptCurve(scene: Scene, values: (scene: Scene) => number[]): Curve[] {
  const { kept } = scene;
  if (!kept) return [];
  return [
    {
      label: "kept",
      stroke: { color: scene.palette.soft, width: 2, dash: [4, 2] },
      steps: stepsOf(kept),
      values: values(kept),
    },
  ];
}

export function stepsOf(scene: Scene): number[] {
  return scene.history.frames.map((frame) => frame.step);
}

/** The largest number of several curves. */
export function largest(curves: Curve[]): number {
  let most = Number.NEGATIVE_INFINITY;
  for (const { values } of curves) {
    for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i]) && values[i] > most) most = values[i];
  }
  return most;
}

export function lossChart(scene: Scene): CurveChart {
  const loss = (of: Scene): number[] => of.history.frames.map((frame) => frame.loss);
  const kept = keptCurve(scene, loss);
  const curves = [
    ...kept,
    {
      label: kept.length ? "now" : "",
      stroke: { color: scene.palette.ink, width: 2 },
      steps: stepsOf(scene),
      values: loss(scene),
    },
  ];
  return { title: "Loss (nats)", vertical: new Axis(0, roundUp(Math.max(largest(curves), 1e-3)), false), curves };
}

export function measureChart(scene: Scene): CurveChart {
  const { palette, measure } = scene;
  const steps = stepsOf(scene);
  const byClass = measured(scene);
  const count = scene.rows.length;
  const thin: Curve[] = [];
  if (count > 1 && count <= MOST_THIN_LINES) {
    for (let n = 0; n < count; n++)
      thin.push({
        label: "",
        stroke: { color: palette.line, width: 1 },
        steps,
        values: byClass.map((values) => values[n]),
      });
  }
  const kept = keptCurve(scene, (of) => measured({ ...of, measure }).map(mean));
  const curves = [
    ...thin,
    ...kept,
    {
      label: count > 1 ? "mean of classes" : kept.length ? "now" : "",
      stroke: { color: palette.distinct, width: 2 },
      steps,
      values: byClass.map(mean),
    },
  ];
  const top = measure === "entropy" ? Math.max(0.5, largest(curves)) * 1.08 : 1;
  const exists = measure === "share" || scene.rows.some((each) => each.rows.some((row) => row.kind === "distinct"));
  return {
    title: MEASURE_LABELS[measure],
    vertical: new Axis(0, top, false),
    curves,
    ...(exists ? {} : { missing: NO_DISTINCT }),
  };
}

/** The measure of each class at every record. */
function measured(scene: Scene): ArrayLike<number>[] {
  const { measure, history } = scene;
  if (measure === "entropy") return history.frames.map((frame) => frame.entropy);
  const measureOf = measure === "share" ? largestShares : recalls;
  return history.frames.map((frame) => {
    const known = KNOWN[measure].get(frame);
    if (known) return known;
    const values = measureOf(scene, frame);
    KNOWN[measure].set(frame, values);
    return values;
  });
}

/** A state never changes, so that each is measured once. */
const KNOWN = { share: new WeakMap<Frame, number[]>(), recall: new WeakMap<Frame, number[]>() };

function largestShares({ rows, classes }: Scene, { attention }: Frame): number[] {
  return rows.map((each) =>
    each.rows.reduce((most, { token }) => Math.max(most, attention[each.index * classes.tokens.length + token]), 0),
  );
}

/**
 * The share of a class's distinct tokens whose softmax of z_m over the vocabulary is above 1/M, where all begin.  Tokens
 * that are in no context stay where they start: at z = 0, or near it.
 */
export function recalls({ rows, classes }: Pick<Scene, "rows" | "classes">, { attentionLogits }: Frame): number[] {
  const width = classes.tokens.length;
  const byQuery = queries(classes);
  const means = byQuery.map((_, m) => {
    const row = attentionLogits.subarray(m * width, (m + 1) * width);
    return (row.reduce((sum, z) => sum + Math.exp(z), 0) + classes.vocabSize - width) / classes.vocabSize;
  });
  return rows.map((each) => {
    const m = byQuery.indexOf(classes.query[each.index]);
    const distinct = each.rows.filter((row) => row.kind === "distinct");
    const above = distinct.filter(({ token }) => Math.exp(attentionLogits[m * width + token]) > means[m]);
    return distinct.length ? above.length / distinct.length : Number.NaN;
  });
}
