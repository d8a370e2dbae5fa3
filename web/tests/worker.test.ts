import { strict as assert } from "node:assert";
import { test } from "node:test";
import { type Reply, type Request, Run, defaultSetting, presets } from "../src/engine/index.ts";

const replies: Reply[] = [];
Object.assign(globalThis, { onmessage: null, postMessage: (reply: Reply) => replies.push(reply) });
await import("../src/engine/worker.ts");

const ask = (request: Request): Reply[] => {
  replies.length = 0;
  (globalThis.onmessage as unknown as (event: { data: Request }) => void)({ data: request });
  return [...replies];
};
const setting = defaultSetting(presets()["syn-small"]);

test("a run is loaded, stepped and changed, and its states come in order", () => {
  const [first] = ask({ type: "load", setting });
  assert.ok(first.type === "frames" && first.now.step === 0 && first.frames.length === 1);
  const [second] = ask({ type: "step", steps: 300 });
  assert.ok(second.type === "frames" && second.run === first.run);
  const steps = second.frames.map(({ step }) => step);
  assert.deepEqual(steps, [...Array.from({ length: 255 }, (_, i) => i + 1), ...Array.from({ length: 23 }, (_, i) => 256 + 2 * i)]);
  assert.match(second.phase.words, /^slowed by step \d+ \(checked every 2 steps\), \d+% of attention moved since$/);
  const run = new Run(setting);
  run.advance(300);
  assert.deepEqual(second.now, run.frame());
  assert.deepEqual(ask({ type: "change", part: { lrY: 2 } }), []);
  const [third] = ask({ type: "load", setting });
  assert.ok(third.type === "frames" && third.run === first.run + 1);
});

test("a mistake is answered with a sentence", () => {
  const [refused] = ask({ type: "load", setting: { ...setting, lrY: -1 } });
  assert.deepEqual(refused, { type: "error", message: "lr_y is -1: give a finite learning rate of at least 0." });
  assert.deepEqual(ask({ type: "step", steps: 1 }), []);
});

test("a map fills in cell by cell, and another one takes its place", async () => {
  const map = { setting, axes: "lr_y,lr_z" as const, quantity: "entropy" as const, x: [1, 2, 4], y: [1, 2], steps: 50 };
  ask({ type: "map", map: { ...map, steps: 100_000 } });
  ask({ type: "map", map });
  while (!replies.some(({ type }) => type === "mapped")) await new Promise((done) => setTimeout(done, 5));
  const cells = replies.filter((reply) => reply.type === "cell");
  assert.deepEqual(cells.map(({ column, row }) => [column, row]), [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]);
  assert.ok(cells.every(({ value }) => value > 0 && value < Math.log(10)));
});
