/** Classes as the JSON of a classes file, for the address: the library and `readClasses` read it. */
import type { Classes } from "../engine/index.ts";

export function classesJson(classes: Classes): string {
  const even = classes.weights.every((weight) => weight === classes.weights[0]);
  return JSON.stringify({
    vocab_size: classes.vocabSize,
    ...(classes.tokenNames ? { token_names: classes.tokenNames } : {}),
    class: classes.query.map((query, n) => {
      const used = classes.tokens.map((_, l) => l).filter((l) => classes.probs[n][l] > 0);
      return {
        query,
        next_token: classes.nextToken[n],
        tokens: used.map((l) => classes.tokens[l]),
        probs: used.map((l) => classes.probs[n][l]),
        ...(even ? {} : { weight: classes.weights[n] }),
      };
    }),
  });
}
