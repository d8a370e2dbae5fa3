/** The engine in a worker: see `protocol.ts`. */
import { CellWork, type MapRequest } from "./phase_map.ts";
import { isRecorded, PhaseWatch } from "./phases.ts";
import type { Reply, Request } from "./protocol.ts";
import { Run, type Frame } from "./run.ts";

/** A map works this long before it looks for requests. */
const SLICE_MS = 20;

let run: Run | null = null;
let watch: PhaseWatch | null = null;
let loads = 0;
let maps = 0;

const say = (reply: Reply) => postMessage(reply);

onmessage = ({ data }: MessageEvent<Request>) => answer(() => take(data));

/** Do something; a mistake becomes a sentence. */
function answer(work: () => void): void {
  try {
    work();
  } catch (error) {
    say({ type: "error", message: error instanceof Error ? error.message : String(error) });
  }
}

function take(request: Request): void {
  if (request.type === "load") {
    loads += 1;
    run = null;
    run = new Run(request.setting);
    watch = new PhaseWatch(request.setting.classes);
    step(0);
  } else if (request.type === "step") {
    step(request.steps);
  } else if (request.type === "change") {
    run?.change(request.part);
  } else if (request.type === "map") {
    map(request.map, ++maps, 0, null);
  } else {
    maps += 1;
  }
}

function step(steps: number): void {
  if (run === null || watch === null) return;
  const begun = performance.now();
  const frames: Frame[] = [];
  const keep = () => {
    if (!isRecorded(run!.step)) return;
    const frame = run!.frame();
    watch!.add(frame);
    frames.push(frame);
  };
  if (steps === 0) keep();
  for (const end = run.step + steps; run.step < end; keep()) {
    run.advance(1);
    if (run.stopped !== null) break;
  }
  const now = frames.length && frames[frames.length - 1].step === run.step ? frames[frames.length - 1] : run.frame();
  const phase = watch.phase();
  const words = run.stopped === null ? phase : { name: "diverged" as const, words: run.stopped };
  say({ type: "frames", run: loads, frames, now, phase: words, stopped: run.stopped, ms: performance.now() - begun });
}

/** Go on with map number `id` at a cell, which may be half done. */
function map(request: MapRequest, id: number, cell: number, work: CellWork | null): void {
  if (id !== maps) return;
  const deadline = performance.now() + SLICE_MS, columns = request.x.length, cells = columns * request.y.length;
  while (performance.now() < deadline) {
    if (cell === cells) return say({ type: "mapped" });
    const column = cell % columns, row = Math.floor(cell / columns);
    work ??= new CellWork(request, column, row);
    if (!work.work(deadline)) break;
    say({ type: "cell", column, row, value: work.value() });
    work = null;
    cell += 1;
  }
  setTimeout(() => answer(() => map(request, id, cell, work)), 0);
}
