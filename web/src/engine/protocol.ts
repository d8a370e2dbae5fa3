/**
 * What the page and the worker say to each other.
 *
 * `load` starts a run; `play` advances it by `stepsPerFrame` updates for each animation frame until `pause`; every
 * state that `isRecorded` is posted in `frames`, in order, and the last state reached in `now`, at most once per
 * animation frame (the page answers each `frames` with `drawn`, and the worker never computes further ahead than one).
 */
import type { Phase } from "./index.ts";
import type { Frame } from "./run.ts";
import type { Setting } from "./setting.ts";

export type MapQuantity = "entropy" | "winner" | "snap";
export type MapAxes = "lr_y,lr_z" | "ratio,K";

/** A map over `x` and `y`: (lr_y, lr_z), or (lr_z / lr_y, number of classes). */
export interface MapRequest {
  setting: Setting;
  axes: MapAxes;
  quantity: MapQuantity;
  x: number[];
  y: number[];
  steps: number;
}

export type Request =
  | { type: "load"; setting: Setting }
  | { type: "play"; stepsPerFrame: number }
  | { type: "pause" }
  | { type: "step"; steps: number }
  | { type: "drawn" }
  | { type: "change"; part: Partial<Setting> }
  | { type: "map"; map: MapRequest }
  | { type: "stopMap" };

export type Reply =
  | { type: "frames"; run: number; frames: Frame[]; now: Frame; phase: Phase }
  | { type: "cell"; column: number; row: number; value: number }
  | { type: "mapped" }
  | { type: "error"; message: string };
