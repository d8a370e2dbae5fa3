import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  type Frame, InputError, Run, type Setting, defaultSetting, isRecorded, phase, presets, synthetic, theory,
} from "../src/engine/index.ts";

const small = presets()["syn-small"];
const setting = (part: Partial<Setting> = {}): Setting => ({ ...defaultSetting(small), ...part });
const trained = (part: Partial<Setting>, steps: number): Frame => {
  const run = new Run(setting(part));
  run.advance(steps);
  return run.frame();
};

test("a history holds every step at first and at least 128 for each doubling", () => {
  const count = (first: number, last: number) =>
    Array.from({ length: last - first }, (_, i) => first + i).filter(isRecorded).length;
  assert.equal(count(0, 257), 257);
  assert.equal(count(1 << 15, 1 << 16), 128);
});

test("looking at a run does not change it, and neither does how its steps are divided", () => {
  const run = new Run(setting({ batchSize: 8, seqLen: 16, momentum: 0.9, init: "uniform" }));
  for (let i = 0; i < 10; i++) {
    run.advance(3);
    run.frame();
  }
  assert.deepEqual(run.frame(), trained({ batchSize: 8, seqLen: 16, momentum: 0.9, init: "uniform" }, 30));
});

test("a change to the same options changes nothing, and a change of rates goes on from the state", () => {
  const run = new Run(setting());
  run.advance(20);
  const before = run.frame();
  run.change({ lrY: 1, residual: false, optimizer: "sgd" });
  assert.deepEqual(run.frame(), before);
  run.change({ lrZ: 0 });
  run.advance(20);
  assert.deepEqual(run.frame().attentionLogits, before.attentionLogits);
  assert.ok(run.frame().loss < before.loss);
});

test("another layer keeps what the first one learned", () => {
  for (const init of ["zeros", "uniform"] as const) {
    const run = new Run(setting({ init, normalization: "layer", residual: true, momentum: 0.5 }));
    run.advance(10);
    const before = run.frame();
    run.change({ normalization: "l2", residual: false });
    assert.deepEqual(run.frame().attentionLogits, before.attentionLogits);
    run.change({ residual: true });
    run.advance(1);
    assert.ok(Number.isFinite(run.frame().loss));
  }
});

test("another optimizer begins without memory", () => {
  const run = new Run(setting({ optimizer: "adam", lrY: 0.1, lrZ: 0.1 }));
  run.advance(5);
  run.change({ optimizer: "sgd", lrY: 0, lrZ: 0, momentum: 0.9 });
  const before = run.frame().attentionLogits;
  run.advance(3);
  assert.deepEqual(run.frame().attentionLogits, before);
});

test("classes and start cannot be changed while a run goes on", () => {
  const run = new Run(setting());
  run.change({ init: "uniform", classes: presets()["syn-medium-3"] } as Partial<Setting>);
  assert.equal(run.setting.init, "zeros");
  assert.equal(run.setting.classes, small);
});

test("classes with one direction stop Lemma 3's gradient with a sentence", () => {
  const twins = synthetic({ numQuery: 1, nextPerQuery: 2, numCommon: 3, numDistinct: 1 });
  const probs = [[1 / 3, 1 / 3, 1 / 3, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0, 0]].map((row) => row.slice(0, 3));
  const run = new Run({ ...setting({ decoderGradient: "modified" }), classes: { ...twins, tokens: [0, 1, 2], probs } });
  run.advance(5);
  assert.equal(run.step, 0);
  assert.match(run.stopped!, /linearly dependent at step 0/);
});

test("a setting that cannot be run is refused", () => {
  assert.throws(() => new Run(setting({ lrY: NaN })), InputError);
  assert.throws(() => new Run(setting()).change({ lrZ: -1 }), InputError);
  assert.throws(() => synthetic({ numQuery: 1e9, nextPerQuery: 1 }), InputError);
});

test("theory says what it does not have", () => {
  assert.match(theory(setting()).why!, /here there are 2 queries\. The theorems assume η_Y ≫ η_Z \(here η_Y\/η_Z = 1\)/);
  const assumed = { ...setting({ lrY: 10, decoderGradient: "modified" }), classes: presets()["single-common"] };
  assert.equal(theory(assumed).why, null);
  assert.equal(theory({ ...assumed, lrY: 0 }).scanEnd, null);
});

test("a phase needs a history", () => {
  const run = new Run(setting());
  assert.equal(phase([run.frame()], small).name, "start");
});
