/** Theory drawn over what was measured: Theorem 4's growth factor and Lemma 6's decoder. */
import { Axis, roundUp } from "./axis.ts";
import type { Curve, CurveChart } from "./curve_picture.ts";
import type { Scene } from "./scene.ts";

type Forms = { published: (t: number) => number; exact: (t: number) => number };

/** The token whose growth is followed: Theorem 3's winner, or the most probable distinct one. */
export function followedToken(scene: Scene): { token: number; name: string } | null {
  const { rows } = scene.rows[scene.focus];
  const predicted = scene.theory?.predictedWinner[scene.focus];
  const distinct = rows.filter((row) => row.kind === "distinct").sort((a, b) => b.prob - a.prob);
  return rows.find((row) => row.token === predicted) ?? distinct[0] ?? null;
}

/** chi_l = exp(2 (z_l(t) - z_l(0))) of the followed token, measured and predicted. */
export function growthChart(scene: Scene): CurveChart | null {
  const followed = followedToken(scene);
  if (scene.forms === "none" || !followed) return null;
  const { history } = scene;
  const queries = [...new Set(scene.classes.query)];
  const place = queries.indexOf(scene.classes.query[scene.focus]) * scene.classes.tokens.length + followed.token;
  const start = history.frames[0].attentionLogits[place];
  const measured = history.frames.map((frame) => Math.exp(2 * (frame.attentionLogits[place] - start)));
  return chartOf(scene, `Growth factor χ of ${followed.name}`, measured, scene.theory?.growthFactor ?? null, 1);
}

/** How far the logit of the right next token is ahead of the others, which is M h, measured and predicted. */
export function leadChart(scene: Scene): CurveChart | null {
  const count = scene.rows.length;
  if (scene.forms === "none" || count < 2) return null;
  const measured = scene.history.frames.map(({ decoder }) => {
    const row = decoder.subarray(scene.focus * count, (scene.focus + 1) * count);
    const right = row[scene.focus];
    return right - (row.reduce((sum, value) => sum + value, 0) - right) / (count - 1);
  });
  const growth = scene.theory?.decoderGrowth ?? null;
  const size = scene.classes.vocabSize;
  const scaled = growth && { published: (t: number) => size * growth.published(t), exact: (t: number) => size * growth.exact(t) };
  return chartOf(scene, "Decoder’s lead M·h (logits)", measured, scaled, 0);
}

function chartOf(scene: Scene, title: string, measured: number[], forms: Forms | null, least: number): CurveChart {
  const { palette, time, history } = scene;
  const curves: Curve[] = [];
  const places = Array.from({ length: 121 }, (_, i) => Math.max(time.at(i / 120), time.log ? 1 : 0));
  const seen: number[] = [...measured];
  if (forms) {
    for (const form of ["published", "exact"] as const) {
      if (scene.forms !== form && scene.forms !== "both") continue;
      const values = places.map(forms[form]);
      seen.push(...values);
      curves.push({ label: form, stroke: { color: palette[form === "published" ? "theory" : "exact"], width: 2, dash: form === "published" ? [7, 4] : [2, 3] }, steps: places, values });
    }
  }
  curves.push({ label: "measured", stroke: { color: palette.ink, width: 2.2 }, steps: history.frames.map((frame) => frame.step), values: measured });
  const usable = seen.filter((value) => Number.isFinite(value) && value > 0);
  const most = Math.max(...usable, least + 1e-3);
  const low = Math.min(...usable);
  const wide = least > 0 && most / Math.max(low, 1e-9) > 50;
  const vertical = wide
    ? new Axis(Math.max(1e-6, low), Math.min(most, 1e12) * 1.2, true)
    : new Axis(Math.min(least, low || least), least + roundUp(Math.min(most, 1e12) - least), false);
  return { title, vertical, curves };
}
