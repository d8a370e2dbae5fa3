/** Everything that pictures are drawn from, and the box they are drawn in. */
import type { Classes, Frame, Phase, Theory } from "../engine/index.ts";
import type { Axis } from "./axis.ts";
import type { ClassRows, History } from "./history.ts";
import type { Palette } from "./palette.ts";
import type { Forms, Measure } from "./state.ts";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Scene {
  classes: Classes;
  rows: ClassRows[];
  history: History;
  /** The state that is looked at: the present one, or an earlier one. */
  frame: Frame;
  live: boolean;
  phase: Phase;
  time: Axis;
  theory: Theory | null;
  forms: Forms;
  measure: Measure;
  focus: number;
  palette: Palette;
  /** A run that was kept for comparison, and its rates in words. */
  kept: (Scene & { label: string }) | null;
}

/** Vertical lines that all pictures over time share: theory's phase times. */
export function phaseTimes(scene: Scene): { step: number; label: string }[] {
  if (!scene.theory || scene.forms === "none") return [];
  const { scanEnd, snapStart } = scene.theory;
  return [
    { step: scanEnd, label: "t′₀" },
    { step: snapStart, label: "t₀" },
  ].filter((mark): mark is { step: number; label: string } => mark.step !== null);
}
