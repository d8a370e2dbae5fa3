/**
 * For the library's tests: `node compare.mjs QUESTION FILE` reads cases from a JSON file and writes, as JSON, what the
 * engine makes of them.
 */
import { readFileSync } from "node:fs";
import { fromSupports, Run, type Setting } from "./index.ts";

interface Case {
  classes: Parameters<typeof fromSupports>[0];
  options: Omit<Setting, "classes">;
}

const questions = {
  /** The frames of a run at the steps asked for. */
  train: ({ classes, options, steps }: Case & { steps: number[] }) => {
    const run = new Run({ ...options, classes: fromSupports(classes) });
    return {
      frames: steps.map((step) => {
        run.advance(step - run.step);
        return run.frame();
      }),
    };
  },
};

const [question, file] = process.argv.slice(2) as [keyof typeof questions, string];
const answers = (JSON.parse(readFileSync(file, "utf8")) as never[]).map((each) => questions[question](each));
process.stdout.write(JSON.stringify(answers, (_, value) => (value instanceof Float64Array ? [...value] : value)));
