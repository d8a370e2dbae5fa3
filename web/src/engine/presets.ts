/** The synthetic settings of Section 8, as the library makes them (`data/synthetic.py`). */
import { fromSupports, type Classes } from "./classes.ts";
import { InputError } from "./errors.ts";
import { pairwiseSum } from "./sampling.ts";

export interface Sizes {
  numQuery: number;
  nextPerQuery: number;
  numCommon?: number;
  numDistinct?: number;
  vocabSize?: number;
}

/**
 * K = numQuery x nextPerQuery classes that share their common tokens.  Before normalization a common token has weight 1
 * and a class's distinct tokens have weights evenly spaced from 0.1 to 1.  Ids are common tokens, distinct tokens class
 * by class, query tokens, next tokens, and then tokens that never occur.
 */
export function synthetic({ numQuery, nextPerQuery, numCommon = 10, numDistinct = 10, vocabSize }: Sizes): Classes {
  const sizes = { num_query: numQuery, next_per_query: nextPerQuery, num_common: numCommon, num_distinct: numDistinct };
  for (const [word, size] of Object.entries(sizes)) {
    const least = word === "num_common" ? 0 : 1;
    if (!(Number.isInteger(size) && size >= least && size <= 10_000)) {
      throw new InputError(`${word} is ${size}: give a whole number from ${least} to 10000.`);
    }
  }
  const count = numQuery * nextPerQuery, firstQuery = numCommon + count * numDistinct;
  const used = firstQuery + numQuery + count;
  if (vocabSize !== undefined && vocabSize < used) {
    throw new InputError(`vocab_size is ${vocabSize}: these classes alone use ${used} tokens.`);
  }
  const range = (first: number, length: number) => Array.from({ length }, (_, i) => first + i);
  const step = 0.9 / (numDistinct - 1);
  const distinct = range(0, numDistinct).map((i) => (i === numDistinct - 1 ? 1 : 0.1 + i * step));
  const weights = [...new Array<number>(numCommon).fill(1), ...distinct], total = pairwiseSum(weights);
  const probs = weights.map((weight) => weight / total);
  return fromSupports({
    tokens: range(0, count).map((n) => [...range(0, numCommon), ...range(numCommon + n * numDistinct, numDistinct)]),
    probs: range(0, count).map(() => probs),
    query: range(0, count).map((n) => firstQuery + Math.floor(n / nextPerQuery)),
    nextToken: range(firstQuery + numQuery, count),
    vocabSize: vocabSize ?? used,
  });
}

/** Classes by the library's names. */
export function presets(): Record<string, Classes> {
  return {
    "syn-small": synthetic({ numQuery: 2, nextPerQuery: 1 }),
    ...Object.fromEntries(
      [1, 3, 5, 10].map((numQuery) => [`syn-medium-${numQuery}`, synthetic({ numQuery, nextPerQuery: 2 })]),
    ),
    "single-common": singleCommon(10),
  };
}

/** One query, one common token, five distinct tokens for each of K classes: the setting of Section 6 and Theorem 4. */
export function singleCommon(numClasses: number): Classes {
  return synthetic({ numQuery: 1, nextPerQuery: numClasses, numCommon: 1, numDistinct: 5, vocabSize: 1000 });
}
