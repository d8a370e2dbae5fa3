import { strict as assert } from "node:assert";
import { test } from "node:test";
import { isRecorded } from "../src/engine/index.ts";

test("a history holds every step at first and at least 128 for each doubling", () => {
  const count = (first: number, last: number) =>
    Array.from({ length: last - first }, (_, i) => first + i).filter(isRecorded).length;
  assert.equal(count(0, 257), 257);
  assert.equal(count(1 << 15, 1 << 16), 128);
});
