/** What the tour says is what the engine does: every stop's answer, measured. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Frame, kinds, Run, theory } from "../src/engine/index.ts";
import { classesOf, type State, usable } from "../src/page/state.ts";
import { STOPS } from "../src/page/tour.ts";

function run(state: State, at: number[]): { run: Run; frames: Frame[] } {
  const training = new Run({ classes: classesOf(state.data), ...usable(state.options) });
  const frames = at.map((step) => {
    training.advance(step - training.step);
    return training.frame();
  });
  return { run: training, frames };
}

/** Attention of the first class by name, and that of all its common tokens together. */
function shares(training: Run, frame: Frame): { of: (name: string) => number; common: number; best: string } {
  const { classes } = training.setting;
  const roles = kinds(classes);
  const row = [...frame.attention.subarray(0, classes.tokens.length)];
  const name = (l: number): string => classes.tokenNames?.[classes.tokens[l]] ?? String(classes.tokens[l]);
  return {
    of: (wanted) => row[row.findIndex((_, l) => name(l) === wanted)],
    common: row.reduce((sum, share, l) => sum + (roles[l] === "common" ? share : 0), 0),
    best: name(row.indexOf(Math.max(...row))),
  };
}

function stop(title: string): State {
  const found = STOPS.find((each) => each.title === title);
  assert.ok(found, title);
  return found.state();
}

test("there are seven stops, each with one right answer among its answers", () => {
  assert.equal(STOPS.length, 7);
  for (const { answers, right } of STOPS) assert.ok(answers[right]);
});

test("what you see: the is as frequent as dog, and dog wins", () => {
  const { run: training, frames } = run(stop("What you see"), [0, 40]);
  const [start, end] = frames.map((frame) => shares(training, frame));
  assert.ok(Math.abs(start.of("the") - start.of("dog")) < 1e-12);
  assert.equal(end.best, "dog");
});

test("scanning: the common token falls by nearly half", () => {
  const { run: training, frames } = run(stop("Scanning"), [0, 100]);
  const [start, end] = frames.map((frame) => shares(training, frame).common);
  assert.ok(end / start > 0.5 && end / start < 0.6, `${end / start}`);
});

test("the one ahead wins: two to one becomes more than ten to one", () => {
  const state = stop("The one ahead wins");
  const { run: training, frames } = run(state, [0, 60]);
  const [start, end] = frames.map((frame) => shares(training, frame));
  assert.ok(Math.abs(start.of("dog") / start.of("cat") - 2) < 1e-12);
  assert.ok(end.of("dog") > 0.9 && end.of("dog") / end.of("cat") > 10);
  const winner = theory(training.setting).predictedWinner[0];
  assert.equal(training.setting.classes.tokenNames?.[training.setting.classes.tokens[winner!]], "dog");
});

test("snapping: dog stands at 83% after forty updates and after 2,000", () => {
  const { run: training, frames } = run(stop("Snapping"), [40, 2000]);
  const [early, late] = frames.map((frame) => shares(training, frame).of("dog"));
  assert.ok(Math.abs(early - 0.83) < 0.01, `${early}`);
  assert.ok(Math.abs(late - 0.83) < 0.01, `${late}`);
});

test("a faster decoder leaves common tokens 57%, the slower one 40%", () => {
  const state = stop("A faster decoder");
  const fast = run(state, [100]);
  const slow = run({ ...state, options: { ...state.options, lrY: 1 } }, [100]);
  assert.equal(Math.round(100 * shares(fast.run, fast.frames[0]).common), 57);
  assert.equal(Math.round(100 * shares(slow.run, slow.frames[0]).common), 40);
});

/** ln chi of the predicted winner of the first class. */
function growth(state: State, options: Partial<State["options"]>, step: number): { measured: number; training: Run } {
  const { run: training, frames } = run({ ...state, options: { ...state.options, ...options } }, [step]);
  const winner = theory(training.setting).predictedWinner[0]!;
  return { measured: 2 * frames[0].attentionLogits[winner], training };
}

test("theory and SGD part: measured growth stays below both forms, closer under Lemma 3's gradient", () => {
  const state = stop("Where theory and SGD disagree");
  for (const step of [100, 1000, 10_000]) {
    const { measured, training } = growth(state, {}, step);
    const forms = theory(training.setting).growthFactor!;
    assert.ok(measured < Math.log(forms.exact(step)) && measured < Math.log(forms.published(step)));
    const proven = growth(state, { decoderGradient: "modified" }, step).measured;
    assert.ok(proven > 1.5 * measured);
  }
});

test("the order of the decoder's rates reverses under true SGD", () => {
  const state = stop("Where theory and SGD disagree");
  const at = (lrY: number, decoderGradient: "true" | "modified"): number =>
    growth(state, { lrY, decoderGradient }, 10_000).measured;
  assert.ok(at(0.5, "modified") > at(5, "modified"));
  assert.ok(at(0.5, "true") < at(5, "true"));
  const [slow, fast] = [0.5, 5].map((lrY) => theory(growth(state, { lrY }, 1).training.setting).growthFactor!);
  for (const form of ["published", "exact"] as const) assert.ok(slow[form](10_000) > fast[form](10_000));
});

test("why it snaps: under sign SGD common words lose on after the loss is zero, and no word gets ahead", () => {
  const { run: training, frames } = run(stop("Why it snaps"), [0, 100, 200]);
  const [start, middle, end] = frames.map((frame) => shares(training, frame).common);
  assert.ok(middle < start && frames[1].loss < 1e-9);
  assert.ok(end < 0.4 * middle, `${middle} to ${end}`);
  assert.ok(frames[2].entropy[0] > 0.99 * Math.log(6), `${frames[2].entropy[0]}`);
  const snapped = new Run({ ...training.setting, optimizer: "sgd", lrY: 5, lrZ: 10, momentum: 0.9 });
  snapped.advance(100); // the setting of the first stops, in contrast
  const before = shares(snapped, snapped.frame()).common;
  snapped.advance(100);
  assert.ok(shares(snapped, snapped.frame()).common > 0.9 * before);
});
