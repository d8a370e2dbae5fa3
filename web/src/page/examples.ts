/** Small classes in words, for those who have not read the paper yet. */
import { type Classes, presets } from "../engine/index.ts";

/** Common tokens of weight 1 each, and for each answer its own words with these weights. */
function inWords(common: string[], own: Record<string, string[]>, weights: number[], query: string): Classes {
  const answers = Object.keys(own);
  const total = common.length + weights.reduce((sum, weight) => sum + weight, 0);
  const each = weights.length;
  const names = [...common, ...Object.values(own).flat()];
  return {
    vocabSize: names.length + 1 + answers.length,
    tokens: names.map((_, l) => l),
    probs: answers.map((_, n) =>
      names.map((_name, l) => {
        const place = l - common.length - n * each;
        return (l < common.length ? 1 : place >= 0 && place < each ? weights[place] : 0) / total;
      }),
    ),
    query: answers.map(() => names.length),
    nextToken: answers.map((_, n) => names.length + 1 + n),
    weights: answers.map(() => 1 / answers.length),
    tokenNames: [...names, query, ...answers],
  };
}

const EXAMPLES: Record<string, () => Classes> = {
  words: () =>
    inWords(
      ["the", "a", "of", "and", "is", "it"],
      {
        pets: ["leash", "paw", "bone", "fur", "cat", "dog"],
        cooking: ["spoon", "oven", "salt", "stove", "butter", "pan"],
      },
      [0.2, 0.3, 0.4, 0.5, 0.75, 1],
      "about",
    ),
  rivals: () => inWords(["the", "a"], { pets: ["cat", "dog"], cooking: ["salt", "pan"] }, [1, 2], "about"),
};

/** Classes by name: the library's presets and the examples of this page. */
export function namedClasses(): Record<string, Classes> {
  return { ...Object.fromEntries(Object.entries(EXAMPLES).map(([name, make]) => [name, make()])), ...presets() };
}

/** Whether the library knows this name, so that a command can use it. */
export function isLibraryName(name: string): boolean {
  return name in presets();
}
