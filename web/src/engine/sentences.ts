/**
 * Classes of labeled sentences, one a line: "label: words ...".  Each label is a next token, its words are the contextual
 * tokens with their shares of all words under that label, and one query, "?", asks for the label.
 */
import { fromSupports, type Classes } from "./classes.ts";
import { InputError } from "./errors.ts";

const QUERY = "?";
const MOST_CHARACTERS = 1_000_000;

export function sentencesToClasses(text: string): Classes {
  if (text.length > MOST_CHARACTERS) throw new InputError(`give at most ${MOST_CHARACTERS.toLocaleString("en-US")} characters.`);
  const counts = new Map<string, Map<string, number>>();
  text.split(/\r\n|\r|\n/).forEach((line, i) => {
    if (line.trim() === "") return;
    const colon = line.indexOf(":"), label = line.slice(0, colon).trim().toLowerCase();
    if (colon < 0 || label === "") {
      throw new InputError(`line ${i + 1} has no label: begin each line with one, as in “sports: the team won”.`);
    }
    const words = line.slice(colon + 1).toLowerCase().match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu) ?? [];
    if (words.length === 0) throw new InputError(`line ${i + 1} has no words after its label: give some, or remove it.`);
    const own = counts.get(label) ?? new Map<string, number>();
    counts.set(label, own);
    for (const word of words) own.set(word, (own.get(word) ?? 0) + 1);
  });
  if (counts.size < 2) {
    throw new InputError("there are fewer than two labels: give sentences of at least two, one a line, as “label: words”.");
  }
  // The words of each label, the most frequent first; then the query, then labels that are no words.
  const ids = new Map<string, number>();
  const id = (word: string) => ids.get(word) ?? (ids.set(word, ids.size), ids.size - 1);
  const own = [...counts.values()].map((words) => new Map([...words].sort(([, a], [, b]) => b - a)));
  const tokens = own.map((words) => [...words.keys()].map(id));
  const query = id(QUERY);
  const nextToken = [...counts.keys()].map(id);
  return fromSupports({
    tokens,
    probs: own.map((words) => {
      const total = [...words.values()].reduce((sum, count) => sum + count, 0);
      return [...words.values()].map((count) => count / total);
    }),
    query: nextToken.map(() => query),
    nextToken,
    vocabSize: ids.size,
    tokenNames: [...ids.keys()],
  });
}
