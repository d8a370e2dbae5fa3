/** The parts of the page that need no browser: axes, history, probabilities, pictures as text. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultSetting, type Frame } from "../src/engine/index.ts";
import { Axis, numberLabel, roundUp, timeAxis } from "../src/page/axis.ts";
import { namedClasses } from "../src/page/examples.ts";
import { NO_DISTINCT, measureChart, recalls } from "../src/page/curves.ts";
import type { Scene } from "../src/page/scene.ts";
import { classRows, History } from "../src/page/history.ts";
import { SvgPen } from "../src/page/pen.ts";
import { usualSpeed, SPEEDS } from "../src/page/player.ts";
import { reason } from "../src/page/phase_line.ts";
import { withProbability } from "../src/page/probability_editor.ts";

test("ticks are round, increase, and lie on the axis", () => {
  const axes = [
    new Axis(0, 1, false),
    new Axis(-3, 7.2, false),
    new Axis(1, 1e6, true),
    new Axis(3e-5, 2, true),
    new Axis(2, 9, true),
    timeAxis(40, false),
    timeAxis(3, true),
  ];
  for (const axis of axes) {
    for (const count of [2, 3, 6]) {
      const ticks = axis.ticks(count);
      assert.ok(ticks.length >= 1, `${axis.least} to ${axis.most}`);
      ticks.forEach(({ place }, i) =>
        assert.ok(place > -1e-9 && place < 1 + 1e-9 && (i === 0 || place > ticks[i - 1].place)),
      );
    }
    for (const place of [0, 0.3, 1]) assert.ok(Math.abs(axis.place(axis.at(place)) - place) < 1e-12);
  }
});

test("numbers are short and true", () => {
  const labels = { 0: "0", 0.25: "0.25", 1234: "1,230", 1e6: "10⁶", 2.5e-7: "2.5·10⁻⁷", 100000: "10⁵" };
  for (const [value, label] of Object.entries(labels)) assert.equal(numberLabel(Number(value)), label);
  assert.deepEqual([0.07, 1, 1.01, 37].map(roundUp), [0.1, 1, 2, 50]);
});

function frame(step: number, size: number): Frame {
  const empty = new Float64Array(size);
  return { step, attention: empty, attentionLogits: empty, decoder: empty, loss: 0, accuracy: 0, entropy: empty };
}

test("a history finds states and stays within its memory", () => {
  const history = new History();
  for (let step = 0; step < 400; step++) history.add(frame(step, 100_000));
  assert.ok(history.frames.length * 3 * 8e5 < 2e8);
  assert.equal(history.frames[0].step, 0);
  assert.equal(history.last.step, 399);
  history.add(frame(200, 1)); // known already
  assert.equal(history.last.step, 399);
  for (const step of [0, 17, 250, 399, 1000]) {
    const at = history.indexAt(step);
    assert.ok(history.frames[at].step <= step);
    assert.ok(at === history.frames.length - 1 || history.frames[at + 1].step > step);
  }
});

test("a dragged probability leaves a distribution in which the others keep their ratios", () => {
  const { words } = namedClasses();
  for (const wanted of [-1, 0.5, 0.2, 7]) {
    const [row] = withProbability(words, 0, 2, wanted).probs;
    assert.ok(Math.abs(row.reduce((sum, p) => sum + p, 0) - 1) < 1e-12);
    assert.ok(row[2] > 0 && row[2] < 1);
    assert.ok(Math.abs(row[6] / row[0] - words.probs[0][6] / words.probs[0][0]) < 1e-12);
  }
  assert.equal(words.probs[0][2], namedClasses().words.probs[0][2]);
});

test("rows are a class's own tokens, common ones below, as in the library's pictures", () => {
  const [pets, cooking] = classRows(namedClasses().words);
  assert.deepEqual(
    pets.rows.map((row) => row.name),
    ["dog", "cat", "fur", "bone", "paw", "leash", "it", "is", "and", "of", "a", "the"],
  );
  assert.deepEqual(pets.rows.map((row) => row.kind).indexOf("common"), 6);
  assert.equal(cooking.next, "cooking");
  const many = {
    ...namedClasses().words,
    tokens: Array.from({ length: 100 }, (_, l) => l),
    probs: [new Array(100).fill(0.01)],
    query: [100],
    nextToken: [101],
    tokenNames: null,
  };
  assert.equal(classRows(many)[0].rows.length + classRows(many)[0].hidden, 100);
});

test("recall counts the distinct tokens whose softmax over the whole vocabulary is above 1/M", () => {
  const classes = { ...namedClasses()["syn-medium-3"], vocabSize: 400 };
  const width = classes.tokens.length;
  const rows = classRows(classes);
  const attentionLogits = Float64Array.from({ length: 3 * width }, (_, i) => 3 * Math.sin(12.9898 * i));
  const values = recalls({ rows, classes }, { ...frame(5, 1), attentionLogits });
  rows.forEach((each, n) => {
    const query = Math.floor(n / 2);
    const whole = new Array<number>(classes.vocabSize).fill(0);
    classes.tokens.forEach((token, l) => (whole[token] = attentionLogits[query * width + l]));
    const total = whole.reduce((sum, z) => sum + Math.exp(z), 0);
    const distinct = each.rows.filter((row) => row.kind === "distinct");
    const above = distinct.filter((row) => Math.exp(whole[classes.tokens[row.token]]) / total > 1 / classes.vocabSize);
    assert.equal(values[n], above.length / distinct.length);
    assert.ok(values[n] > 0 && values[n] < 1);
  });
});

test("where no token is distinct, a sentence stands in place of an empty panel", () => {
  const shown = (words: object, measure: string) => {
    const classes = { ...namedClasses()["syn-small"], ...words };
    const frames = [{ ...frame(0, 1), entropy: new Float64Array(classes.probs.length).fill(Number.NaN) }];
    const scene = { rows: classRows(classes), classes, measure, history: { frames }, palette: {}, kept: null };
    return measureChart(scene as unknown as Scene).missing;
  };
  const shared = { tokens: [0, 1], probs: [[0.6, 0.4], [0.3, 0.7]] };
  assert.equal(shown(shared, "entropy"), NO_DISTINCT);
  assert.equal(shown({}, "entropy"), undefined);
});

test("with momentum, the reason why attention moves and stops is momentum", () => {
  const setting = defaultSetting(namedClasses().words);
  for (const name of ["scanning", "snapping", "snapped"] as const) {
    assert.match(reason(name, { ...setting, momentum: 0.9 }), /momentum/i);
    assert.doesNotMatch(reason(name, setting), /momentum/i);
  }
  assert.match(reason("snapped", setting), /gradient/);
  assert.match(reason("snapped", { ...setting, optimizer: "adam" }), /ignores/);
});

test("an SVG holds names as text", () => {
  const pen = new SvgPen(100, 100);
  pen.text(1, 1, `<script>"'&`, { color: `"/><script>` });
  pen.rect(0, 0, 1, 1, { stripes: `"><x>` });
  const svg = pen.svg();
  assert.ok(!svg.includes("<script") && !svg.includes("<x>"));
  assert.ok(svg.includes("&#60;script&#62;"));
});

test("a run of any length plays in some seconds", () => {
  for (const steps of [10, 40, 100, 1000, 10_000]) {
    const seconds = steps / SPEEDS[usualSpeed(steps, false)];
    assert.ok(seconds > 4 && seconds < 16, `${steps}: ${seconds}`);
  }
});
