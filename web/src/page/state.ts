/** An experiment as a person sets it up, and its writing in the address after #.
 *
 * The address reads like the library's command: `#classes=syn-small&lr_y=1&lr_z=1&momentum=0.9&steps=100`.  `classes` is
 * a name, `synthetic` with its sizes, or a whole classes file as JSON; without it the page opens on words.  What was changed while the run went on is kept
 * as `changes=40:lr_y=5`, so that a link replays it.
 */
import { type Classes, InputError, readClasses, synthetic } from "../engine/index.ts";
import { classesJson } from "./classes_json.ts";
import { namedClasses } from "./examples.ts";
import { DEFAULTS, OPTION, OPTIONS, type OptionKey, type Options, optionPart, shown, writeOption } from "./options.ts";

export interface Sizes {
  numQuery: number;
  nextPerQuery: number;
  numCommon: number;
  numDistinct: number;
  /** M; null is as many as the classes use. */
  vocabSize: number | null;
}

type SizeKey = Exclude<keyof Sizes, "vocabSize">;

export type Data =
  | { kind: "preset"; name: string }
  | { kind: "synthetic"; sizes: Sizes }
  | { kind: "own"; classes: Classes };

export interface Change {
  step: number;
  part: Partial<Options>;
}

export type Forms = "none" | "published" | "exact" | "both";
export type Measure = "entropy" | "share" | "recall";

export interface State {
  data: Data;
  options: Options;
  changes: Change[];
  /** Where playing stops. */
  steps: number;
  /** The step that was shown when the link was made. */
  step: number;
  logTime: boolean;
  theory: Forms;
  measure: Measure;
  /** The class whose theory and probabilities are shown, from 0. */
  focus: number;
}

export const SIZES: readonly { key: SizeKey; name: string; label: string; tip: string; least: number; most: number }[] =
  [
    {
      key: "numQuery",
      name: "num_query",
      label: "Queries",
      tip: "The last word of a sequence; each query has attention of its own.",
      least: 1,
      most: 32,
    },
    {
      key: "nextPerQuery",
      name: "next_per_query",
      label: "Classes per query",
      tip: "How many next tokens may follow a query. K is the number of queries times this.",
      least: 1,
      most: 32,
    },
    {
      key: "numCommon",
      name: "num_common",
      label: "Common tokens",
      tip: "Words that occur in every class: they say nothing about what comes next.",
      least: 0,
      most: 50,
    },
    {
      key: "numDistinct",
      name: "num_distinct",
      label: "Distinct tokens per class",
      tip: "Words that occur in one class alone: each gives the class away.",
      least: 1,
      most: 50,
    },
  ];

export const MOST_CLASSES = 64;
const MOST_TOKENS = 1_000_000;
export const MOST_STEPS = 10_000_000;
export const MOST_ADDRESS = 60_000;
const FORMS: readonly Forms[] = ["none", "published", "exact", "both"];
const MEASURES: readonly Measure[] = ["entropy", "share", "recall"];

/** A state with some parts set; the others are the library's defaults. */
export function stateWith(part: Partial<State> = {}, options: Partial<Options> = {}): State {
  return {
    data: { kind: "preset", name: "syn-small" },
    changes: [],
    steps: 100,
    step: 0,
    logTime: false,
    theory: "none",
    measure: "entropy",
    focus: 0,
    ...part,
    options: { ...DEFAULTS, ...options },
  };
}

/** What a visitor sees first: words, and rates at which attention scans and snaps within seconds. */
export function firstState(): State {
  return stateWith({ data: { kind: "preset", name: "words" }, steps: 40 }, { lrY: 5, lrZ: 10, momentum: 0.9 });
}

/** The classes that data stand for. */
export function classesOf(data: Data): Classes {
  if (data.kind === "own") return data.classes;
  if (data.kind === "synthetic") {
    const { vocabSize, ...sizes } = checkedSizes(data.sizes);
    return synthetic(vocabSize === null ? sizes : { ...sizes, vocabSize });
  }
  const named = namedClasses();
  const classes = Object.hasOwn(named, data.name) ? named[data.name] : undefined;
  if (!classes)
    throw new InputError(`classes is “${shown(data.name)}”: give ${Object.keys(named).join(", ")}, or a classes file.`);
  return classes;
}

export function checkedSizes(sizes: Sizes): Sizes {
  for (const { key, label, least, most } of SIZES) {
    const value = sizes[key];
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new InputError(
        `${label} is ${Number.isNaN(value) ? "empty" : value}: give a whole number from ${least} to ${most}.`,
      );
    }
  }
  const count = sizes.numQuery * sizes.nextPerQuery;
  if (count > MOST_CLASSES)
    throw new InputError(
      `That makes ${count} classes: the page shows at most ${MOST_CLASSES}, so give fewer queries or classes per query.`,
    );
  const { vocabSize } = sizes;
  if (vocabSize !== null && !(Number.isInteger(vocabSize) && vocabSize >= used(sizes) && vocabSize <= MOST_TOKENS)) {
    throw new InputError(
      `Vocabulary M is ${vocabSize}: these classes use ${used(sizes)} tokens, so give a whole number from ${used(sizes)} to ${MOST_TOKENS.toLocaleString("en-US")}, or none.`,
    );
  }
  return sizes;
}

/** How many tokens such classes use: contextual, query and next tokens. */
function used({ numQuery, nextPerQuery, numCommon, numDistinct }: Sizes): number {
  return numCommon + numQuery * nextPerQuery * (numDistinct + 1) + numQuery;
}

/** Options as the engine takes them: only SGD has momentum. */
export function usable(options: Options): Options {
  return { ...options, momentum: options.optimizer === "sgd" ? options.momentum : 0 };
}

/** The sizes of classes as `synthetic` makes them, where they could come from there. */
export function sizesOf(state: State, classes: Classes): Sizes {
  if (state.data.kind === "synthetic") return state.data.sizes;
  const numQuery = new Set(classes.query).size;
  const counts = classes.tokens.map((_, l) => classes.probs.filter((row) => row[l] > 0).length);
  const sizes = {
    numQuery,
    nextPerQuery: Math.max(1, Math.round(classes.query.length / numQuery)),
    numCommon: counts.filter((count) => count > 1).length,
    numDistinct: Math.max(1, Math.round(counts.filter((count) => count === 1).length / classes.query.length)),
    vocabSize: null,
  };
  return classes.vocabSize > used(sizes) ? { ...sizes, vocabSize: classes.vocabSize } : sizes;
}

/** The state, written. */
export function writeAddress(state: State): string {
  const parts: [string, string][] = [];
  const { data } = state;
  if (data.kind === "preset") parts.push(["classes", data.name]);
  else if (data.kind === "synthetic") {
    parts.push(["classes", "synthetic"]);
    for (const { key, name } of SIZES) parts.push([name, String(data.sizes[key])]);
    if (data.sizes.vocabSize !== null) parts.push(["vocab_size", String(data.sizes.vocabSize)]);
  } else parts.push(["classes", classesJson(data.classes)]);
  for (const spec of OPTIONS) parts.push([spec.name, writeOption(spec, state.options[spec.key])]);
  parts.push(["steps", String(state.steps)]);
  if (state.step) parts.push(["step", String(state.step)]);
  if (state.changes.length) parts.push(["changes", state.changes.map(writeChange).join(";")]);
  if (state.logTime) parts.push(["log", "1"]);
  if (state.theory !== "none") parts.push(["theory", state.theory]);
  if (state.measure !== "entropy") parts.push(["measure", state.measure]);
  if (state.focus) parts.push(["class", String(state.focus + 1)]);
  return `#${parts.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%3D", "=")}`).join("&")}`;
}

/** The state that an address stands for, and what of it could not be used, in sentences. */
export function readAddress(address: string): { state: State; problems: string[] } {
  const text = address.replace(/^#/, "");
  const state = /(^|&)classes=/.test(text) ? stateWith() : firstState();
  const problems: string[] = [];
  const attempt = (read: () => void): void => {
    try {
      read();
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
    }
  };
  const known = new Set([
    "classes",
    "steps",
    "step",
    "changes",
    "log",
    "theory",
    "measure",
    "class",
    "vocab_size",
    ...OPTIONS.map((spec) => spec.name),
    ...SIZES.map((size) => size.name),
  ]);
  const parts = new Map<string, string>();
  for (const piece of text.split("&").filter(Boolean)) {
    const cut = piece.indexOf("=");
    const name = cut < 0 ? piece : piece.slice(0, cut);
    let value = cut < 0 ? "" : piece.slice(cut + 1);
    try {
      value = decodeURIComponent(value);
    } catch {
      problems.push(`${shown(name)} cannot be read: the link was cut or changed on its way, so copy it again.`);
      continue;
    }
    if (known.has(name)) parts.set(name, value);
    else problems.push(`“${shown(name)}” in the address is unknown and was ignored.`);
  }
  const classes = parts.get("classes");
  if (classes !== undefined) attempt(() => (state.data = readData(classes, parts)));
  for (const spec of OPTIONS) {
    const value = parts.get(spec.name);
    if (value !== undefined) attempt(() => Object.assign(state.options, optionPart([[spec.name, value]])));
  }
  attempt(() => (state.steps = wholeNumber("steps", parts.get("steps"), 1, MOST_STEPS, state.steps)));
  attempt(() => (state.step = wholeNumber("step", parts.get("step"), 0, state.steps, 0)));
  const changes = parts.get("changes");
  if (changes !== undefined) attempt(() => (state.changes = changes.split(";").filter(Boolean).map(readChange)));
  state.logTime = parts.get("log") === "1";
  attempt(() => (state.theory = oneOf("theory", parts.get("theory"), FORMS, "none")));
  attempt(() => (state.measure = oneOf("measure", parts.get("measure"), MEASURES, "entropy")));
  attempt(() => (state.focus = wholeNumber("class", parts.get("class"), 1, 10_000, 1) - 1));
  return { state, problems };
}

function readData(text: string, parts: Map<string, string>): Data {
  if (text.trimStart().startsWith("{")) return { kind: "own", classes: readClasses(text) };
  if (text === "synthetic") {
    const sizes: Sizes = { numQuery: 2, nextPerQuery: 1, numCommon: 10, numDistinct: 10, vocabSize: null };
    for (const { key, name, least, most } of SIZES)
      sizes[key] = wholeNumber(name, parts.get(name), least, most, sizes[key]);
    if (parts.has("vocab_size"))
      sizes.vocabSize = wholeNumber("vocab_size", parts.get("vocab_size"), 1, MOST_TOKENS, 1);
    return { kind: "synthetic", sizes: checkedSizes(sizes) };
  }
  const data: Data = { kind: "preset", name: text };
  classesOf(data);
  return data;
}

function wholeNumber(name: string, text: string | undefined, least: number, most: number, otherwise: number): number {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (text === "" || !Number.isInteger(value) || value < least || value > most) {
    throw new InputError(`${name} is “${shown(text)}”: give a whole number from ${least} to ${most}.`);
  }
  return value;
}

function oneOf<Name extends string>(
  name: string,
  text: string | undefined,
  names: readonly Name[],
  otherwise: Name,
): Name {
  if (text === undefined) return otherwise;
  const known = names.find((each) => each === text);
  if (!known) throw new InputError(`${name} is “${shown(text)}”: give ${names.join(", ")}.`);
  return known;
}

function writeChange(change: Change): string {
  const part = Object.entries(change.part).map(([key, value]) => {
    const spec = OPTION[key as OptionKey];
    return `${spec.name}=${writeOption(spec, value)}`;
  });
  return `${change.step}:${part.join(",")}`;
}

function readChange(text: string): Change {
  const [, step, part] = /^(\d+):(.+)$/.exec(text) ?? [];
  if (step === undefined || part === undefined) {
    throw new InputError(`changes has “${shown(text)}”: give STEP:name=value, as in 40:lr_y=5.`);
  }
  const pieces = part.split(",").map((piece) => {
    const [name, value] = piece.split("=");
    if (!OPTIONS.some((spec) => spec.name === name))
      throw new InputError(`changes names “${shown(name ?? "")}”, which is no option.`);
    return [name!, value ?? ""] as const;
  });
  return { step: wholeNumber("changes", step, 0, MOST_STEPS, 0), part: optionPart(pieces) };
}
