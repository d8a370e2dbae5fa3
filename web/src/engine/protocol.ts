/**
 * What the page and the worker say to each other.
 *
 * `load` starts a run and answers with its state at step 0; `step` takes so many updates and answers with all states that
 * `isRecorded`, in order, and with the state reached; `change` has no answer.  `run` in an answer counts the `load`s, so
 * that a page knows answers about a run that it has left.  `map` computes a map between other requests, cell by cell;
 * another `map` or `stopMap` ends it.
 */
import type { MapRequest } from "./phase_map.ts";
import type { Phase } from "./phases.ts";
import type { Frame } from "./run.ts";
import type { Setting } from "./setting.ts";

export type Request =
  | { type: "load"; setting: Setting }
  | { type: "step"; steps: number }
  | { type: "change"; part: Partial<Omit<Setting, "classes" | "init">> }
  | { type: "map"; map: MapRequest }
  | { type: "stopMap" };

export type Reply =
  /** `stopped` says in a sentence why a run cannot go on, null while it can; `ms` is how long the updates took. */
  | { type: "frames"; run: number; frames: Frame[]; now: Frame; phase: Phase; stopped: string | null; ms: number }
  | { type: "cell"; column: number; row: number; value: number }
  | { type: "mapped" }
  | { type: "error"; message: string };
