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

/** A mistake in what a person gave: one sentence that says what was given, what is allowed and what to do. */
export class InputError extends Error {}
