import { InputError } from "./errors.ts";

/**
 * Sequence classes (Section 3.2): contextual tokens l are drawn from P(l|n), the query m = psi(n) comes last, and the
 * next token n is to be predicted.
 */
export interface Classes {
  /** M: the vocabulary; tokens have ids from 0 to M - 1. */
  vocabSize: number;
  /** S ids of the contextual tokens, increasing. */
  tokens: number[];
  /** K rows of S: P(l|n), 0 where a token does not occur in the class. */
  probs: number[][];
  /** K ids: the query of each class. */
  query: number[];
  /** K ids, all different: the next token of each class. */
  nextToken: number[];
  /** K numbers: P(n), which sum to one. */
  weights: number[];
  /** M names, or null where tokens have only ids. */
  tokenNames: string[] | null;
}

/** The distinct query tokens, in order of first use: the rows of attention logits. */
export function queries(classes: Classes): number[] {
  return [...new Set(classes.query)];
}

/** For each contextual token, whether only one class has it. */
export function isDistinct(classes: Classes): boolean[] {
  return classes.tokens.map((_, l) => classes.probs.reduce((count, row) => count + (row[l] > 0 ? 1 : 0), 0) === 1);
}

/** The role of each contextual token: common to several classes, or distinct of one. */
export function kinds(classes: Classes): ("common" | "distinct")[] {
  return isDistinct(classes).map((distinct) => (distinct ? "distinct" : "common"));
}

/** The token's name, or its id if it has none. */
export function name(classes: Classes, token: number): string {
  return classes.tokenNames?.[token] ?? String(token);
}

/** How far a sum of probabilities may be from one: single-precision rounding; only ratios matter. */
const SUM_TOLERANCE = 1e-6;
const MOST_TOKENS = 10 ** 8;
/** The most numbers that P(l|n) may hold here. */
const MOST_PROBS = 4_000_000;

/** Classes from each class's own tokens and their probabilities, checked. */
export function fromSupports(parts: {
  tokens: number[][];
  probs: number[][];
  query: number[];
  nextToken: number[];
  vocabSize: number;
  weights?: number[] | null;
  tokenNames?: string[] | null;
}): Classes {
  const { query, nextToken, vocabSize, weights = null, tokenNames = null } = parts;
  checkSize(vocabSize);
  parts.tokens.forEach((ids, n) => {
    const row = parts.probs[n];
    if (ids.length !== row.length) {
      throw new InputError(`class ${n + 1} has ${ids.length} tokens but ${row.length} probabilities: give one per token.`);
    }
    if (new Set(ids).size < ids.length) {
      throw new InputError(`class ${n + 1} lists a token twice: give each token once, with its whole probability.`);
    }
    checkIds(`class ${n + 1}`, ids, vocabSize);
  });
  const used = new Set(parts.tokens.flatMap((ids, n) => ids.filter((_, w) => parts.probs[n][w] !== 0)));
  const tokens = [...used].sort((a, b) => a - b);
  if (tokens.length * query.length > MOST_PROBS) {
    throw new InputError(`${query.length} classes over ${tokens.length} tokens are more than the explorer shows: `
      + "give fewer, or train them with the library.");
  }
  const place = new Map(tokens.map((token, l) => [token, l]));
  const probs = parts.tokens.map((ids, n) => {
    const row = new Array<number>(tokens.length).fill(0);
    ids.forEach((id, w) => {
      const l = place.get(id);
      if (l !== undefined) row[l] = parts.probs[n][w];
    });
    return row;
  });
  return checkClasses({ vocabSize, tokens, probs, query, nextToken, weights: weights ?? uniform(query.length), tokenNames });
}

function uniform(count: number): number[] {
  return new Array<number>(count).fill(1 / count);
}

/** Refuse what are not classes, wherever they come from, with an `InputError`; give them back otherwise. */
export function checkClasses(classes: Classes): Classes {
  const { vocabSize, tokens, probs, query, nextToken, weights, tokenNames } = classes;
  checkSize(vocabSize);
  const lists = [tokens, probs, query, nextToken, weights, ...(Array.isArray(probs) ? probs : [])];
  if (!lists.every(Array.isArray)) throw new InputError("classes must be lists of tokens and probabilities.");
  const count = probs.length;
  if (count === 0) throw new InputError("there are no classes: give at least one row of probabilities.");
  for (const [word, list] of [["query", query], ["next_token", nextToken], ["weights", weights]] as const) {
    if (list.length !== count) {
      throw new InputError(`${word} has ${list.length} entries for ${count} classes: give one per class.`);
    }
  }
  checkIds("query", query, vocabSize);
  checkIds("next_token", nextToken, vocabSize);
  checkIds("the list of tokens", tokens, vocabSize);
  if (tokens.some((token, l) => l > 0 && token <= tokens[l - 1])) {
    throw new InputError("the ids of contextual tokens must increase: give each once, in order.");
  }
  const seen = new Map<number, number>();
  nextToken.forEach((token, n) => {
    const other = seen.get(token);
    if (other !== undefined) {
      throw new InputError(`next token ${name(classes, token)} belongs to classes ${other + 1} and ${n + 1}: the explorer shows the `
        + "paper's form, in which the next token determines the class and its query; train others with the library.");
    }
    seen.set(token, n);
  });
  const own = nextToken.findIndex((token, n) => token === query[n]);
  if (own >= 0) {
    throw new InputError(`class ${own + 1} has the query ${query[own]} and predicts the same token: give it a next token `
      + "other than its query.");
  }
  probs.forEach((row, n) => {
    if (row.length !== tokens.length) {
      throw new InputError(`class ${n + 1} has ${row.length} probabilities for ${tokens.length} tokens: give one per token.`);
    }
    for (const value of row) {
      if (!Number.isFinite(value)) {
        throw new InputError(`the probabilities of class ${n + 1} contain ${shown(value)}: give finite numbers.`);
      }
      if (value < 0) throw new InputError(`class ${n + 1} has the probability ${value}: probabilities are at least 0.`);
    }
    const total = sum(row);
    if (Math.abs(total - 1) > SUM_TOLERANCE) {
      throw new InputError(`the probabilities of class ${n + 1} sum to ${+total.toPrecision(9)}, not 1: divide the row by its sum.`);
    }
  });
  const absent = tokens.findIndex((_, l) => probs.every((row) => row[l] === 0));
  if (absent >= 0) throw new InputError(`token ${tokens[absent]} occurs in no class: leave it out of the list of tokens.`);
  if (!weights.every((weight) => Number.isFinite(weight) && weight > 0)) {
    throw new InputError("weights must be positive finite numbers: leave out a class that is never drawn.");
  }
  if (Math.abs(sum(weights) - 1) > SUM_TOLERANCE) {
    throw new InputError(`weights sum to ${+sum(weights).toPrecision(9)}, not 1: divide them by their sum.`);
  }
  if (tokenNames !== null) {
    if (!Array.isArray(tokenNames) || !tokenNames.every((word) => typeof word === "string")) {
      throw new InputError("token_names must be a list of names, one per token.");
    }
    if (tokenNames.length !== vocabSize) {
      throw new InputError(`token_names holds ${tokenNames.length} names for ${vocabSize} tokens: give one name per token.`);
    }
  }
  return classes;
}

function checkSize(vocabSize: number): void {
  if (!(Number.isInteger(vocabSize) && vocabSize >= 2 && vocabSize <= MOST_TOKENS)) {
    throw new InputError(`vocab_size is ${shown(vocabSize)}: give a whole number from 2 to ${MOST_TOKENS}.`);
  }
}

function checkIds(where: string, ids: number[], vocabSize: number): void {
  for (const id of ids) {
    if (!(Number.isInteger(id) && id >= 0 && id < vocabSize)) {
      throw new InputError(`${where} holds token ${shown(id)}: ids run from 0 to ${vocabSize - 1}.`);
    }
  }
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** A value of any kind in a sentence, shortened. */
function shown(value: unknown): string {
  return String(typeof value === "object" ? JSON.stringify(value) : value).slice(0, 60);
}
