/** An address gives back the state that it was written from, and garbage is answered in sentences. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FIGURES } from "../src/page/figures.ts";
import { OPTIONS, writeOption } from "../src/page/options.ts";
import { classesOf, firstState, readAddress, type State, stateWith, writeAddress } from "../src/page/state.ts";
import { STOPS } from "../src/page/tour.ts";

const states: State[] = [
  firstState(),
  stateWith(),
  ...FIGURES.map(({ state }) => state),
  ...STOPS.map((stop) => stop.state()),
  stateWith(
    {
      data: {
        kind: "synthetic",
        sizes: { numQuery: 3, nextPerQuery: 2, numCommon: 0, numDistinct: 7, vocabSize: 500 },
      },
      steps: 77,
      step: 12,
      logTime: true,
      theory: "both",
      measure: "recall",
      focus: 3,
    },
    {
      lrY: 0.1 + 0.2,
      lrZ: 1e-7,
      batchSize: null,
      seqLen: null,
      seed: 2 ** 53 - 1,
      residual: true,
      normalization: "layer",
      init: "uniform",
    },
  ),
  stateWith({
    changes: [
      { step: 3, part: { lrY: 5 } },
      { step: 9, part: { optimizer: "adam", batchSize: null, residual: true } },
    ],
    step: 20,
  }),
  stateWith({
    data: {
      kind: "own",
      classes: {
        ...classesOf({ kind: "preset", name: "rivals" }),
        tokenNames: ["a&b=c#", "%20;:,", "<script>", "\"'", "é", "日本", "x", "y", "z"],
      },
    },
  }),
];

test("an address gives back its state", () => {
  for (const state of states) {
    const { state: again, problems } = readAddress(writeAddress(state));
    assert.deepEqual(problems, []);
    assert.deepEqual(again, state);
  }
});

test("an empty address is the first state", () => {
  assert.deepEqual(readAddress("").state, firstState());
  assert.deepEqual(readAddress("#").state, firstState());
});

test("every option has a name of its own and can be written", () => {
  assert.equal(new Set(OPTIONS.map(({ name }) => name)).size, OPTIONS.length);
  for (const spec of OPTIONS) assert.match(writeOption(spec, stateWith().options[spec.key]), /^[\w.]+$/);
});

test("garbage leaves a usable state and says so", () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const address = writeAddress(states[states.length - 2]);
  for (let i = 0; i < 2000; i++) {
    const letters = [...address];
    for (let j = 0; j < 1 + 3 * random(); j++)
      letters[Math.floor(random() * letters.length)] = String.fromCharCode(32 + Math.floor(random() * 95));
    const { state, problems } = readAddress(letters.join("").slice(0, Math.floor(20 + random() * letters.length)));
    classesOf(state.data);
    for (const { key, kind } of OPTIONS)
      assert.ok(state.options[key] !== undefined && !Number.isNaN(state.options[key]), kind);
    for (const problem of problems) assert.match(problem, /\.$/);
  }
});
