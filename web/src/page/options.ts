/** What can be changed while a run goes on: each option stated once, with its name, limits, label and explanation.
 *
 * Names are those of the library and its flags; controls, the address after # and the tests follow from this list.
 */
import type { Setting } from "../engine/index.ts";

export type Options = Omit<Setting, "classes">;
export type OptionKey = keyof Options;
type Value = number | string | boolean | null;

export interface OptionSpec {
  key: OptionKey;
  /** The library's name, used in the address. */
  name: string;
  label: string;
  tip: string;
  kind: "rate" | "whole" | "share" | "choice" | "switch";
  least?: number;
  most?: number;
  /** Where a rate's slider begins and ends. */
  slider?: readonly [number, number];
  /** What an empty value is called, where there may be none. */
  none?: string;
  /** The value that a switch from none to some begins with. */
  some?: number;
  choices?: readonly (readonly [value: string, label: string])[];
  /** Whether the run must begin again when this changes. */
  restarts?: boolean;
}

export const OPTIONS: readonly OptionSpec[] = [
  {
    key: "lrY",
    name: "lr_y",
    label: "Decoder rate η_Y",
    kind: "rate",
    least: 0,
    most: 1e6,
    slider: [0.001, 100],
    tip: "How fast the decoder Y learns which next token each word points to.",
  },
  {
    key: "lrZ",
    name: "lr_z",
    label: "Attention rate η_Z",
    kind: "rate",
    least: 0,
    most: 1e6,
    slider: [0.001, 100],
    tip: "How fast the attention logits Z learn which words to look at.",
  },
  {
    key: "decoderGradient",
    name: "decoder_gradient",
    label: "Decoder gradient",
    kind: "choice",
    choices: [
      ["true", "true SGD"],
      ["modified", "Lemma 3’s"],
    ],
    tip: "True SGD is what ordinary training computes. The paper proves its theorems for the simpler gradient of Lemma 3.",
  },
  {
    key: "optimizer",
    name: "optimizer",
    label: "Optimizer",
    kind: "choice",
    choices: [
      ["sgd", "SGD"],
      ["adam", "Adam"],
      ["sign_sgd", "sign SGD"],
      ["normalized_sgd", "normalized SGD"],
    ],
    tip: "How a gradient becomes a step. Adam and sign SGD ignore how large the gradient is.",
  },
  {
    key: "momentum",
    name: "momentum",
    label: "Momentum",
    kind: "share",
    least: 0,
    most: 0.99,
    tip: "How much of the last step SGD repeats: 0 is plain SGD; the published runs use 0.9.",
  },
  {
    key: "batchSize",
    name: "batch_size",
    label: "Batch size",
    kind: "whole",
    least: 1,
    most: 100_000,
    none: "all (expected)",
    some: 128,
    tip: "How many sequences one update sees. “All” takes the expected update, without sampling noise.",
  },
  {
    key: "seqLen",
    name: "seq_len",
    label: "Sequence length T",
    kind: "whole",
    least: 2,
    most: 1_000_000,
    none: "∞",
    some: 128,
    tip: "Tokens in a sequence, including the query. ∞ replaces counts by probabilities.",
  },
  {
    key: "seed",
    name: "seeds",
    label: "Seed",
    kind: "whole",
    least: 0,
    most: Number.MAX_SAFE_INTEGER,
    restarts: true,
    tip: "Which random sequences (and which random start) are drawn. The library draws the same ones.",
  },
  {
    key: "init",
    name: "init",
    label: "Start",
    kind: "choice",
    choices: [
      ["zeros", "zero"],
      ["uniform", "random"],
    ],
    restarts: true,
    tip: "Zero starts Y and Z at 0; random draws every entry from ±1/√M, as the published Syn-Medium runs do.",
  },
  {
    key: "residual",
    name: "residual",
    label: "Residual connection",
    kind: "switch",
    tip: "Adds the query to what attention brings, as real transformers do (Section 7).",
  },
  {
    key: "normalization",
    name: "normalization",
    label: "Normalization",
    kind: "choice",
    choices: [
      ["l2", "ℓ2"],
      ["layer", "LayerNorm"],
    ],
    tip: "ℓ2 divides by the length, as in the paper; LayerNorm subtracts the mean first.",
  },
];

export const OPTION = Object.fromEntries(OPTIONS.map((spec) => [spec.key, spec])) as Record<OptionKey, OptionSpec>;

/** The library's. */
export const DEFAULTS: Options = {
  lrY: 1,
  lrZ: 1,
  decoderGradient: "true",
  batchSize: 128,
  seqLen: 128,
  seed: 0,
  optimizer: "sgd",
  momentum: 0,
  init: "zeros",
  residual: false,
  normalization: "l2",
};

/** How a value is written in the address: as the library's flags take it. */
export function writeOption(spec: OptionSpec, value: Value): string {
  if (value === null) return spec.key === "seqLen" ? "inf" : "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

/** The value that a text in the address stands for; a sentence where it stands for none. */
export function readOption(spec: OptionSpec, text: string): Value {
  if (spec.kind === "choice") {
    const values = (spec.choices ?? []).map(([value]) => value);
    if (values.includes(text)) return text;
    throw new Error(`${spec.name} is “${shown(text)}”: give ${values.join(", ")}.`);
  }
  if (spec.kind === "switch") {
    if (["yes", "true", "1"].includes(text)) return true;
    if (["no", "false", "0"].includes(text)) return false;
    throw new Error(`${spec.name} is “${shown(text)}”: give yes or no.`);
  }
  if (spec.none !== undefined && ["none", "inf", ""].includes(text)) return null;
  const value = Number(text);
  const whole = spec.kind === "whole";
  const [least, most] = [spec.least ?? 0, spec.most ?? Number.MAX_VALUE];
  if (
    text.trim() === "" ||
    !Number.isFinite(value) ||
    value < least ||
    value > most ||
    (whole && !Number.isInteger(value))
  ) {
    throw new Error(
      `${spec.name} is “${shown(text)}”: give a ${whole ? "whole " : ""}number from ${least} to ${most.toLocaleString("en-US")}.`,
    );
  }
  return value;
}

/** A part of the options from names and texts. */
export function optionPart(texts: Iterable<readonly [string, string]>): Partial<Options> {
  const part: Record<string, Value> = {};
  for (const [name, text] of texts) {
    const spec = OPTIONS.find((each) => each.name === name);
    if (spec) part[spec.key] = readOption(spec, text);
  }
  return part as Partial<Options>;
}

/** Text short enough for a sentence. */
export function shown(text: string): string {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
