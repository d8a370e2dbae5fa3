/**
 * The part of (Y, Z) that can ever matter (the library's `systems/yz/compact.py`, which derives it).
 *
 * Rows of Y are those of contextual tokens, then of queries that are not contextual where a residual connection reads
 * them, then, where LayerNorm gives every token an entry, one row for the nu tokens that have no row of their own and so
 * stay equal.  Columns of Y are the next tokens in class order, then the others: from a zero start these stay equal, and
 * are one column with multiplicity mu.
 */
import { queries, type Classes } from "./classes.ts";
import type { Setting } from "./setting.ts";

export interface Layout {
  vocabSize: number;
  /** S. */
  numTokens: number;
  numQueries: number;
  /** D rows of Y, with the number nu of tokens that each stands for. */
  rowMultiplicity: Float64Array;
  /** Rows of Y that belong to one token: all but a last shared one. */
  ownRows: number;
  /** C columns of Y, with the number mu of tokens that each stands for. */
  multiplicity: Float64Array;
  /** The column of each token, where every token has its own; null where columns are merged. */
  columnOfToken: Int32Array | null;
  /** For each class: the rows of its tokens, and one more for its query where it is read and not among them. */
  slots: Int32Array[];
  /** For each class: which slot is its query's; -1 without a residual connection. */
  ownSlot: Int32Array;
  /** For each class: P(l|n) of its tokens. */
  probs: Float64Array[];
  /** P(n). */
  weights: Float64Array;
  /** For each class: its row of Z. */
  queryIndex: Int32Array;
  /** Whether LN subtracts the mean over all tokens. */
  centered: boolean;
}

export function makeLayout(setting: Pick<Setting, "classes" | "residual" | "normalization" | "init">): Layout {
  const { classes, residual } = setting;
  const centered = setting.normalization === "layer";
  const rowOf = new Map(classes.tokens.map((token, row) => [token, row]));
  if (residual) {
    for (const token of queries(classes).sort((a, b) => a - b)) if (!rowOf.has(token)) rowOf.set(token, rowOf.size);
  }
  const ownRows = rowOf.size;
  const others = classes.vocabSize - ownRows;
  const rowMultiplicity = new Float64Array(centered && others > 0 ? ownRows + 1 : ownRows).fill(1);
  if (rowMultiplicity.length > ownRows) rowMultiplicity[ownRows] = others;

  const supports = classes.probs.map((row) => [...row.keys()].filter((l) => row[l] > 0));
  const ownSlot = new Int32Array(supports.length).fill(-1);
  const slots = supports.map((support, n) => {
    if (!residual) return Int32Array.from(support);
    const row = rowOf.get(classes.query[n])!;
    const place = support.indexOf(row);
    ownSlot[n] = place < 0 ? support.length : place;
    return Int32Array.from(place < 0 ? [...support, row] : support);
  });
  const index = new Map(queries(classes).map((token, q) => [token, q]));
  const { multiplicity, columnOfToken } = columns(classes, setting.init === "zeros");
  return {
    vocabSize: classes.vocabSize,
    numTokens: classes.tokens.length,
    numQueries: index.size,
    rowMultiplicity,
    ownRows,
    multiplicity,
    columnOfToken,
    slots,
    ownSlot,
    probs: supports.map((support, n) => Float64Array.from(support, (l) => classes.probs[n][l])),
    weights: Float64Array.from(classes.weights),
    queryIndex: Int32Array.from(classes.query, (token) => index.get(token)!),
    centered,
  };
}

function columns(classes: Classes, merged: boolean): Pick<Layout, "multiplicity" | "columnOfToken"> {
  const { vocabSize, nextToken } = classes;
  if (merged) {
    const multiplicity = new Float64Array(nextToken.length + (vocabSize > nextToken.length ? 1 : 0)).fill(1);
    if (multiplicity.length > nextToken.length) multiplicity[nextToken.length] = vocabSize - nextToken.length;
    return { multiplicity, columnOfToken: null };
  }
  const columnOfToken = new Int32Array(vocabSize).fill(-1);
  nextToken.forEach((token, n) => (columnOfToken[token] = n));
  let column = nextToken.length;
  for (let token = 0; token < vocabSize; token++) if (columnOfToken[token] < 0) columnOfToken[token] = column++;
  return { multiplicity: new Float64Array(vocabSize).fill(1), columnOfToken };
}
