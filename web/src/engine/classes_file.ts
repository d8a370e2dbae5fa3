/** Classes as text: the TOML and JSON files of the library's `read_classes` and `write_classes`. */
import { parse, TomlDate } from "smol-toml";
import { fromSupports, name, type Classes } from "./classes.ts";
import { InputError } from "./errors.ts";

const FILE_KEYS = ["vocab_size", "token_names", "positions", "class"];
const CLASS_KEYS = ["query", "next_token", "tokens", "probs", "weight"];
const MOST_CHARACTERS = 20_000_000;

type Table = Record<string, unknown>;

/** Classes written as TOML or JSON. */
export function readClasses(text: string): Classes {
  if (text.length > MOST_CHARACTERS) throw new InputError("the classes file is too large to show: train it with the library.");
  const content = parsed(text);
  if (!isTable(content)) throw new InputError("the classes file must hold the keys vocab_size and class at its top level.");
  checkKeys(content, FILE_KEYS, ["vocab_size", "class"], "the classes file");
  if (content.positions !== undefined) {
    throw new InputError("the tokens of these classes depend on their position, which the explorer has not: train them "
      + "with the library.");
  }
  const vocabSize = content.vocab_size;
  if (typeof vocabSize !== "number") throw new InputError(`vocab_size is ${shown(vocabSize)}: give a whole number.`);
  const names = content.token_names ?? null;
  if (names !== null && !(Array.isArray(names) && names.every((word) => typeof word === "string"))) {
    throw new InputError("token_names must be a list of names, one per token.");
  }
  const tokenNames = names as string[] | null;
  const idOf = new Map((tokenNames ?? []).map((word, id) => [word, id]));
  if (idOf.size < (tokenNames ?? []).length) idOf.clear(); // repeated names cannot stand for a token
  const token = (value: unknown): number => {
    if (typeof value === "number") return value;
    if (typeof value !== "string") throw new InputError(`a token is ${shown(value)}: give an id (a whole number) or a name.`);
    const id = idOf.get(value);
    if (id !== undefined) return id;
    throw new InputError(idOf.size
      ? `unknown token name '${shown(value)}': choose one of token_names.`
      : `token '${shown(value)}' is a name, but the file has no token_names (or they repeat): give ids.`);
  };
  const entries = content.class;
  if (!Array.isArray(entries) || entries.length === 0) {
    throw new InputError("class must be a list with one entry per sequence class.");
  }
  entries.forEach((entry: unknown, n) => {
    if (!isTable(entry)) throw new InputError(`class ${n + 1} must hold the keys query, next_token, tokens and probs.`);
    checkKeys(entry, CLASS_KEYS, CLASS_KEYS.slice(0, 4), `class ${n + 1}`);
    for (const key of ["tokens", "probs"]) {
      if (!Array.isArray(entry[key])) throw new InputError(`${key} of class ${n + 1} must be a list.`);
    }
    for (const value of [...(entry.probs as unknown[]), entry.weight ?? 1]) {
      if (typeof value !== "number") throw new InputError(`class ${n + 1} has ${shown(value)} for a probability: give a number.`);
    }
  });
  const tables = entries as Table[];
  const without = tables.findIndex((entry) => entry.weight === undefined);
  const weighted = tables.some((entry) => entry.weight !== undefined);
  if (weighted && without >= 0) {
    throw new InputError(`class ${without + 1} has no weight but others do: give all classes one, or none.`);
  }
  return fromSupports({
    tokens: tables.map((entry) => (entry.tokens as unknown[]).map(token)),
    probs: tables.map((entry) => entry.probs as number[]),
    query: tables.map((entry) => token(entry.query)),
    nextToken: tables.map((entry) => token(entry.next_token)),
    vocabSize,
    weights: weighted ? tables.map((entry) => entry.weight as number) : null,
    tokenNames,
  });
}

function parsed(text: string): unknown {
  const isJson = text.trimStart().startsWith("{") || text.trimStart().startsWith("[{");
  try {
    return isJson ? JSON.parse(text) : parse(text);
  } catch (error) {
    const reason = String((error as Error).message).split("\n")[0].replace(/\.$/, "");
    throw new InputError(`this is not valid ${isJson ? "JSON" : "TOML"}: ${reason}.`);
  }
}

function isTable(value: unknown): value is Table {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof TomlDate);
}

function checkKeys(content: Table, allowed: string[], required: string[], where: string): void {
  for (const key of Object.keys(content)) {
    if (!allowed.includes(key)) {
      throw new InputError(`unknown key in ${where} '${shown(key)}': choose one of ${allowed.join(", ")}.`);
    }
  }
  for (const key of required) {
    if (content[key] === undefined) throw new InputError(`${where} has no '${key}': it needs ${required.join(", ")}.`);
  }
}

function shown(value: unknown): string {
  return String(typeof value === "object" ? JSON.stringify(value) : value).slice(0, 60);
}

/** The classes file (TOML) from which `readClasses` and the library give these classes back. */
export function writeClasses(classes: Classes): string {
  const { tokenNames, tokens } = classes;
  const named = tokenNames !== null && new Set(tokenNames).size === tokenNames.length;
  const label = (token: number) => (named ? quoted(name(classes, token)) : String(token));
  const lines = [`vocab_size = ${classes.vocabSize}`];
  if (tokenNames !== null) lines.push(`token_names = [${tokenNames.map(quoted).join(", ")}]`);
  classes.query.forEach((query, n) => {
    const own = [...classes.probs[n].keys()].filter((l) => classes.probs[n][l] > 0);
    lines.push(
      "",
      "[[class]]",
      `query = ${label(query)}`,
      `next_token = ${label(classes.nextToken[n])}`,
      `weight = ${decimal(classes.weights[n])}`,
      `tokens = [${own.map((l) => label(tokens[l])).join(", ")}]`,
      `probs = [${own.map((l) => decimal(classes.probs[n][l])).join(", ")}]`,
    );
  });
  return `${lines.join("\n")}\n`;
}

/** A TOML string: JSON's, whose escapes TOML has too, without halves of characters, and with DEL escaped. */
function quoted(text: string): string {
  return JSON.stringify(text.replace(/\p{Surrogate}/gu, "\ufffd")).replace(/\x7f/g, "\\u007f");
}

/** A number with a decimal point or an exponent, as TOML's floats have. */
function decimal(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
