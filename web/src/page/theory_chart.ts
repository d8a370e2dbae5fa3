/** Theory drawn over what was measured: Theorem 4's growth factor and Lemma 6's decoder. */
import type { Forms } from "../engine/index.ts";
import { Axis, roundUp } from "./axis.ts";
import type { Curve, CurveChart } from "./curve_picture.ts";
import { keptCurve, largest, stepsOf } from "./curves.ts";
import type { Scene } from "./scene.ts";

const DASHES = { published: [7, 4], exact: [2, 3] } as const;
const COLORS = { published: "theory", exact: "exact" } as const;

/** The token whose growth is followed: Theorem 3's winner, or the most probable distinct one. */
function followedToken(scene: Scene): { token: number; name: string } | null {
  const { rows } = scene.rows[scene.focus];
  const predicted = scene.theory?.predictedWinner[scene.focus];
  const distinct = rows.filter((row) => row.kind === "distinct").sort((a, b) => b.prob - a.prob);
  return rows.find((row) => row.token === predicted) ?? distinct[0] ?? null;
}

/**
 * chi_l = exp(2 (z_l(t) - z_l(0))) of the followed token, measured and predicted.  In logarithmic time ln chi is drawn on
 * a logarithmic axis, on which a power of t is a straight line.
 */
export function growthChart(scene: Scene): CurveChart | null {
  const followed = followedToken(scene);
  if (scene.forms === "none" || !followed) return null;
  const exponents = (of: Scene): number[] => {
    const token = followedToken(of)?.token ?? followed.token;
    const queries = [...new Set(of.classes.query)];
    const place =
      queries.indexOf(of.classes.query[Math.min(scene.focus, of.rows.length - 1)]) * of.classes.tokens.length + token;
    return of.history.frames.map(
      (frame) => 2 * (frame.attentionLogits[place] - of.history.frames[0].attentionLogits[place]),
    );
  };
  const log = scene.time.log;
  const curves = chartCurves(
    scene,
    (of) => (log ? exponents(of) : exponents(of).map(Math.exp)),
    logged(scene.theory?.growthFactor ?? null, log),
  );
  const title = log ? `Growth ln χ of ${followed.name}` : `Growth factor χ of ${followed.name}`;
  if (!log) return { title, vertical: new Axis(1, 1 + roundUp(Math.max(largest(curves) - 1, 1e-3)), false), curves };
  const top = Math.max(largest(curves), 1e-4);
  return { title, vertical: new Axis(top * 1e-4, top * 1.5, true), curves };
}

function logged(forms: Forms | null, log: boolean): Forms | null {
  return forms && log
    ? { published: (t) => Math.log(forms.published(t)), exact: (t) => Math.log(forms.exact(t)) }
    : forms;
}

/** How far the logit of the right next token is ahead of the others, which is M h, measured and predicted. */
export function leadChart(scene: Scene): CurveChart | null {
  if (scene.forms === "none" || scene.rows.length < 2) return null;
  const lead = (of: Scene): number[] => {
    const count = of.rows.length;
    const index = Math.min(scene.focus, count - 1);
    return of.history.frames.map(({ decoder }) => {
      const row = decoder.subarray(index * count, (index + 1) * count);
      return row[index] - (row.reduce((sum, value) => sum + value, 0) - row[index]) / (count - 1);
    });
  };
  const growth = scene.theory?.decoderGrowth ?? null;
  const size = scene.classes.vocabSize;
  const curves = chartCurves(
    scene,
    lead,
    growth && { published: (t) => size * growth.published(t), exact: (t) => size * growth.exact(t) },
  );
  return {
    title: "Decoder’s lead M·h (logits)",
    vertical: new Axis(0, roundUp(Math.max(largest(curves), 1e-3)), false),
    curves,
  };
}

function chartCurves(scene: Scene, measured: (of: Scene) => number[], forms: Forms | null): Curve[] {
  const { palette, time } = scene;
  const times = Array.from({ length: 121 }, (_, i) => time.at(i / 120));
  const drawn = (["published", "exact"] as const).filter(
    (form) => forms && (scene.forms === form || scene.forms === "both"),
  );
  return [
    ...drawn.map((form) => ({
      label: form,
      stroke: { color: palette[COLORS[form]], width: 2, dash: DASHES[form] },
      steps: times,
      values: times.map(forms![form]),
    })),
    ...keptCurve(scene, measured),
    { label: "measured", stroke: { color: palette.ink, width: 2.2 }, steps: stepsOf(scene), values: measured(scene) },
  ];
}
