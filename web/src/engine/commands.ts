/** The command and the Python lines that give a run's numbers, and the setting in words. */
import { recordGap } from "./phases.ts";
import { defaultSetting, type Setting } from "./setting.ts";

/**
 * The options of the library's `train`, as the words of the command line; those of a default there are left out.  Records
 * are as far apart as those by which the page finds the snap.
 */
function words(setting: Setting, steps: number): [string, string | number][] {
  const usual = defaultSetting(setting.classes);
  const options: [string, string | number, boolean][] = [
    ["lr_y", setting.lrY, true],
    ["lr_z", setting.lrZ, true],
    ["steps", steps, true],
    ["batch_size", setting.batchSize ?? "none", true],
    ["seq_len", setting.seqLen ?? "inf", true],
    ["seeds", setting.seed, setting.seed !== usual.seed],
    ["optimizer", setting.optimizer, setting.optimizer !== usual.optimizer],
    ["momentum", setting.momentum, setting.momentum !== usual.momentum],
    ["decoder_gradient", setting.decoderGradient, setting.decoderGradient !== usual.decoderGradient],
    ["init", setting.init, setting.init !== usual.init],
    ["residual", "yes", setting.residual],
    ["normalization", setting.normalization, setting.normalization !== usual.normalization],
    ["record_every", recordGap(steps), recordGap(steps) > 1],
    ["dtype", "float64", true],
  ];
  return options.filter(([, , stated]) => stated).map(([word, value]) => [word, value]);
}

/** "decoder rate 1, attention rate 1, momentum 0.9, batches of 128, T = 128, seed 0"; what is usual is left out. */
export function inWords(setting: Setting): string {
  const usual = defaultSetting(setting.classes);
  return [
    `decoder rate ${setting.lrY}`,
    `attention rate ${setting.lrZ}`,
    setting.optimizer !== usual.optimizer && setting.optimizer.replaceAll("_", " "),
    setting.momentum > 0 && `momentum ${setting.momentum}`,
    setting.batchSize === null ? "expected updates" : `batches of ${setting.batchSize}`,
    setting.seqLen === null ? "T → ∞" : `T = ${setting.seqLen}`,
    setting.decoderGradient !== usual.decoderGradient && "Lemma 3’s decoder gradient",
    setting.init !== usual.init && `start ${setting.init}`,
    setting.residual && "residual connection",
    setting.normalization !== usual.normalization && "LayerNorm",
    `seed ${setting.seed}`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** The command; `classes` is a preset's name or the name of a classes file. */
export function command(setting: Setting, steps: number, classes: string): string {
  const flags = words(setting, steps).map(([word, value]) => `--${word.replaceAll("_", "-")} ${value}`);
  const source = /^[\w.-]+$/.test(classes) ? classes : `'${classes.replaceAll("'", "'\\''")}'`;
  return ["scansnap train", `--classes ${source}`, ...flags].join(" ");
}

/** The same in Python. */
export function python(setting: Setting, steps: number, classes: string): string {
  const values: Record<string, string> = { none: "None", inf: "math.inf", yes: "True" };
  const options = words(setting, steps).map(([word, value]) => {
    return `${word}=${typeof value === "number" ? value : (values[value] ?? JSON.stringify(value))}`;
  });
  return [
    ...(setting.seqLen === null ? ["import math"] : []),
    "import scansnap as ss",
    "",
    `result = ss.train(${[JSON.stringify(classes), ...options].join(", ")})`,
    'print(result["attention_logits"].isel(step=-1).values)',
  ].join("\n");
}
