/**
 * For the library's tests: `node compare.mjs FILE` reads questions from a JSON file, `[name, case]` each, and writes, as
 * JSON, what the engine answers.
 */
import { readFileSync } from "node:fs";
import * as engine from "./engine/index.ts";
import { makeLayout } from "./engine/layout.ts";
import { Stream } from "./engine/random.ts";
import { Sampler } from "./engine/sampling.ts";
import { classesOf, readAddress } from "./page/state.ts";

interface Case {
  classes: Parameters<typeof engine.fromSupports>[0];
  options: Omit<engine.Setting, "classes">;
}

const settingOf = ({ classes, options }: Case): engine.Setting => ({ ...options, classes: engine.fromSupports(classes) });

const questions = {
  /** The frames of a run at the steps asked for. */
  train: (each: Case & { steps: number[] }) => {
    const run = new engine.Run(settingOf(each));
    return each.steps.map((step) => {
      run.advance(step - run.step);
      return run.frame();
    });
  },
  /** Words of a stream, high halves before low ones. */
  words: ({ seed, step, index, count }: Record<"seed" | "step" | "index" | "count", number>) => {
    const stream = new Stream().of(seed, step, index);
    return Array.from({ length: count }, (_, j) => {
      stream.word(j);
      return [stream.high >>> 0, stream.low >>> 0, stream.uniform(j)];
    });
  },
  /** The class and the counts of each sequence of an update. */
  sequences: (each: Case & { step: number }) => {
    const setting = settingOf(each), sequences: [number, number[]][] = [];
    const request = { seed: setting.seed, batchSize: setting.batchSize, length: setting.seqLen! - 1 };
    new Sampler(makeLayout(setting)).visit(request, each.step, (n, counts) => sequences.push([n, Array.from(counts)]));
    return sequences;
  },
  /** What the paper predicts, at the times asked for. */
  theory: (each: Case & { times: number[] }) => {
    const predicted = engine.theory(settingOf(each));
    const at = (forms: engine.Forms | null) =>
      forms && { published: each.times.map(forms.published), exact: each.times.map(forms.exact) };
    return { ...predicted, decoderGrowth: at(predicted.decoderGrowth), growthFactor: at(predicted.growthFactor) };
  },
  snap: ({ steps, moved, patterns }: Record<"steps" | "moved", (number | null)[]> & { patterns: number[][] | null }) =>
    engine.findSnap(steps as number[], moved.map((share) => share ?? NaN), patterns ?? undefined),
  /** The phase of a run after so many steps. */
  phase: (each: Case & { steps: number }) => {
    const run = new engine.Run(settingOf(each)), history = [run.frame()];
    while (run.step < each.steps && run.stopped === null) {
      run.advance(1);
      if (engine.isRecorded(run.step)) history.push(run.frame());
    }
    return engine.phase(history, run.setting.classes);
  },
  /** A map's cells, row by row. */
  map: (each: Case & { map: Omit<engine.MapRequest, "setting"> }) => {
    const request = { ...each.map, setting: settingOf(each) };
    return request.y.map((_, row) =>
      request.x.map((_, column) => {
        const cell = new engine.CellWork(request, column, row);
        cell.work(Infinity);
        return cell.value();
      }),
    );
  },
  presets: () => engine.presets(),
  /** Classes from a file's text, and the file that the page writes of them; or the sentence that refuses it. */
  read: ({ text }: { text: string }) => said(() => engine.readClasses(text)),
  sentences: ({ text }: { text: string }) => said(() => engine.sentencesToClasses(text)),
  command: (each: Case & { steps: number; file: string }) => ({
    command: engine.command(settingOf(each), each.steps, each.file),
    python: engine.python(settingOf(each), each.steps, each.file),
  }),
  /** What the page makes of an address. */
  address: ({ text }: { text: string }) => {
    const { state, problems } = readAddress(text);
    return { classes: classesOf(state.data), options: state.options, steps: state.steps, problems };
  },
  refuse: (each: Case) => said(() => engine.checkSetting(settingOf(each)).classes),
};

function said(make: () => engine.Classes): { classes: engine.Classes; file: string } | { refused: string } {
  try {
    const classes = make();
    return { classes, file: engine.writeClasses(classes) };
  } catch (error) {
    if (error instanceof engine.InputError) return { refused: error.message };
    throw error;
  }
}

const asked = JSON.parse(readFileSync(process.argv[2], "utf8")) as [keyof typeof questions, never][];
const answers = asked.map(([question, each]) => questions[question](each));
process.stdout.write(JSON.stringify(answers, (_, value) => (value instanceof Float64Array ? [...value] : value)));
