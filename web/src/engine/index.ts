/** The engine's whole interface: the mathematics of the explorer, without a page. */
export { checkClasses, fromSupports, isDistinct, kinds, name, queries, type Classes } from "./classes.ts";
export { readClasses, writeClasses } from "./classes_file.ts";
export { command, inWords, python } from "./commands.ts";
export { InputError } from "./errors.ts";
export { cellGap, cellSetting, CellWork, type MapAxes, type MapQuantity, type MapRequest } from "./phase_map.ts";
export { isRecorded, phase, recordGap, type Phase } from "./phases.ts";
export { presets, singleCommon, synthetic, type Sizes } from "./presets.ts";
export type { Reply, Request } from "./protocol.ts";
export { Run, type Frame } from "./run.ts";
export { sentencesToClasses } from "./sentences.ts";
export { checkSetting, defaultSetting, type Normalization, type Optimizer, type Setting } from "./setting.ts";
export { findSnap, type Snap } from "./snap.ts";
export { theory, type Forms, type Theory } from "./theory.ts";
