/** Everything about the data: presets, sizes, probabilities, the query map, a classes file, labeled sentences. */
import { type Classes, name, readClasses, sentencesToClasses } from "../engine/index.ts";
import { h, fill } from "./dom.ts";
import type { ClassRows } from "./history.ts";
import { ProbabilityEditor } from "./probability_editor.ts";
import { type Data, type Sizes, type State, SIZES, checkedSizes, sizesOf } from "./state.ts";
import { explain } from "./tooltip.ts";

const MOST_FILE = 1_000_000;

const PRESETS: readonly (readonly [name: string, label: string, tip: string])[] = [
  ["words", "Words", "Two topics in words: six words that both share, and six of each topic’s own."],
  ["syn-small", "Syn-Small", "2 queries, 1 next token each; 10 common and 10 distinct tokens (Figures 4 and 5)."],
  ["syn-medium-1", "Syn-Medium 1", "1 query with 2 next tokens (Figure 6)."],
  ["syn-medium-3", "Syn-Medium 3", "3 queries with 2 next tokens each (Figure 6)."],
  ["syn-medium-10", "Syn-Medium 10", "10 queries with 2 next tokens each (Figure 6)."],
  ["single-common", "Single common", "1 query, 10 classes, one common token: the setting of Section 6."],
];

const VOCABULARY = {
  key: "vocabSize",
  name: "vocab_size",
  label: "Vocabulary M",
  least: 1,
  most: 1_000_000,
  tip: "How many tokens the decoder chooses from. Other tokens never occur. Leave it empty to use only the tokens of the classes.",
} as const;

const SENTENCES = `pets: the old dog chased the cat
pets: the dog ate the fish on the mat
pets: a small dog slept on the mat
cooking: the cook fried the fish in butter
cooking: the butter melted on the pan
cooking: a small pan of butter on the stove`;

const CLASSES_EXAMPLE = `vocab_size = 7
token_names = ["the", "cat", "dog", "sat", "ran", "mat", "bone"]

[[class]]
query = "sat"
next_token = "mat"
tokens = ["the", "cat"]
probs = [0.5, 0.5]

[[class]]
query = "sat"
next_token = "bone"
tokens = ["the", "dog"]
probs = [0.25, 0.75]
`;

export interface DataEvents {
  choose(data: Data): void;
  /** The user asked for these data by a button below the pictures: bring the pictures into view. */
  train(data: Data): void;
  refuse(sentence: string): void;
}

export class DataPanel {
  readonly element: HTMLElement;
  private readonly chips = new Map<string, HTMLButtonElement>();
  private readonly sizes = new Map<keyof Sizes, HTMLInputElement>();
  private readonly about = h("p", { class: "soft about" });
  private readonly queryMap = h("div", { class: "query-map" });
  private readonly editor: ProbabilityEditor;
  private readonly editorTitle = h("span");
  private shownClasses: Classes | null = null;

  constructor(private readonly events: DataEvents) {
    this.editor = new ProbabilityEditor((classes) => events.choose({ kind: "own", classes }));
    const chips = PRESETS.map(([preset, label, tip]) => {
      const chip = h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": "false",
          onclick: () => events.choose({ kind: "preset", name: preset }),
        },
        label,
      );
      this.chips.set(preset, chip);
      return explain(chip, tip);
    });
    this.element = h(
      "section",
      { class: "card", "aria-label": "Data" },
      h("h2", {}, "Data"),
      h("div", { class: "chips", role: "group", "aria-label": "Settings of the paper" }, ...chips),
      this.about,
      h(
        "details",
        {},
        h("summary", {}, "Numbers of tokens and classes"),
        h("div", { class: "fold" }, ...this.sizeFields()),
      ),
      h(
        "details",
        {},
        h("summary", {}, "Drag the probabilities"),
        h(
          "div",
          { class: "fold" },
          h("p", { class: "soft" }, this.editorTitle, " Drag a bar, or use the arrow keys; training begins again."),
          this.editor.element,
        ),
      ),
      h(
        "details",
        {},
        h("summary", {}, "Query map"),
        h(
          "div",
          { class: "fold" },
          h(
            "p",
            { class: "soft" },
            "Which query comes before each next token. Classes with the same query share their attention logits.",
          ),
          this.queryMap,
        ),
      ),
      this.sentences(),
      this.file(),
    );
  }

  show(state: State, classes: Classes, rows: ClassRows[]): void {
    this.editor.show(classes, rows, state.focus);
    this.editorTitle.textContent = `Class ${state.focus + 1}.`;
    if (classes === this.shownClasses) return;
    this.shownClasses = classes;
    for (const [preset, chip] of this.chips) {
      chip.setAttribute("aria-pressed", String(state.data.kind === "preset" && state.data.name === preset));
    }
    const sizes = sizesOf(state, classes);
    for (const [key, field] of this.sizes) {
      if (document.activeElement !== field) field.value = String(sizes[key] ?? "");
    }
    const queries = new Set(classes.query).size;
    this.about.textContent =
      `${state.data.kind === "own" ? "Your own: " : ""}K = ${counted(classes.query.length, "class", "classes")}, ` +
      `${counted(queries, "query", "queries")}, M = ${classes.vocabSize.toLocaleString("en-US")} tokens`;
    this.showQueryMap(classes);
  }

  /** Take a file that was dropped or chosen. */
  async take(file: File): Promise<void> {
    if (file.size > MOST_FILE) {
      this.events.refuse(
        `${file.name} has ${Math.round(file.size / 1000).toLocaleString("en-US")} kB: a classes file may have ${MOST_FILE / 1000} kB.`,
      );
      return;
    }
    this.attempt(() => readClasses, await file.text(), file.name);
  }

  private sizeFields(): HTMLElement[] {
    return [...SIZES, VOCABULARY].map(({ key, name: id, label, tip, least, most }) => {
      const field = h("input", { type: "number", id: `size-${id}`, min: least, max: most, step: 1, class: "number" });
      field.addEventListener("change", () => this.resize(field));
      this.sizes.set(key, field);
      return explain(h("div", { class: "control" }, h("label", { for: field.id }, label), field), tip, field);
    });
  }

  private resize(changed: HTMLInputElement): void {
    const numbers = Object.fromEntries(
      [...this.sizes].map(([key, field]) => [key, field.value === "" ? Number.NaN : Number(field.value)]),
    );
    const sizes = { ...numbers, vocabSize: Number.isNaN(numbers.vocabSize) ? null : numbers.vocabSize } as Sizes;
    try {
      checkedSizes(sizes);
      changed.removeAttribute("aria-invalid");
      this.events.choose({ kind: "synthetic", sizes });
    } catch (error) {
      changed.setAttribute("aria-invalid", "true");
      this.events.refuse((error as Error).message);
    }
  }

  private showQueryMap(classes: Classes): void {
    const queries = [...new Set(classes.query)].sort((a, b) => a - b);
    fill(
      this.queryMap,
      ...classes.query.map((query, n) => {
        const select = h(
          "select",
          { "aria-label": `query of class ${n + 1}` },
          ...queries.map((id) => h("option", { value: id }, name(classes, id))),
          h("option", { value: -1 }, "a new query"),
        );
        select.value = String(query);
        select.addEventListener("change", () => this.requery(classes, n, Number(select.value)));
        return h("span", { class: "map-row" }, select, ` → ${name(classes, classes.nextToken[n])}`);
      }),
    );
  }

  private requery(classes: Classes, index: number, query: number): void {
    const fresh = query < 0;
    const changed = {
      ...classes,
      query: classes.query.map((each, n) => (n === index ? (fresh ? classes.vocabSize : query) : each)),
      vocabSize: classes.vocabSize + Number(fresh),
      tokenNames:
        classes.tokenNames && fresh ? [...classes.tokenNames, `query ${classes.vocabSize}`] : classes.tokenNames,
    };
    this.events.choose({ kind: "own", classes: changed });
  }

  private sentences(): HTMLElement {
    const area = h("textarea", { id: "sentences", rows: 7, spellcheck: "false" });
    area.value = SENTENCES;
    return h(
      "details",
      {},
      h("summary", {}, "Your sentences: which word wins?"),
      h(
        "div",
        { class: "fold" },
        h("label", { for: area.id }, "One sentence per line, as “label: words”. The label is the token to predict. Order and case are ignored, and every sentence ends with the same query, “?”."),
        area,
        h(
          "button",
          {
            type: "button",
            class: "primary",
            onclick: () => this.attempt(() => sentencesToClasses, area.value, "The sentences"),
          },
          "Train on these sentences",
        ),
      ),
    );
  }

  private file(): HTMLElement {
    const area = h("textarea", { id: "classes-text", rows: 8, spellcheck: "false" });
    area.value = CLASSES_EXAMPLE;
    const input = h("input", { type: "file", id: "classes-file", accept: ".toml,.json,application/json,text/plain" });
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      if (file) void this.take(file);
      input.value = "";
    });
    return h(
      "details",
      {},
      h("summary", {}, "Your classes file"),
      h(
        "div",
        { class: "fold" },
        h("label", { for: area.id }, "TOML or JSON, as for the library’s read_classes"),
        area,
        h(
          "button",
          { type: "button", class: "primary", onclick: () => this.attempt(() => readClasses, area.value, "The text") },
          "Use these classes",
        ),
        h("label", { for: input.id }, "or a file (it can also be dropped anywhere on the page)"),
        input,
      ),
    );
  }

  private attempt(reader: () => (text: string) => Classes, text: string, source: string): void {
    try {
      if (text.length > MOST_FILE)
        throw new Error(
          `there are ${text.length.toLocaleString("en-US")} characters, but at most ${MOST_FILE.toLocaleString("en-US")} are allowed.`,
        );
      this.events.train({ kind: "own", classes: reader()(text) });
    } catch (error) {
      this.events.refuse(`${source} cannot be used: ${(error as Error).message}`);
    }
  }
}

function counted(count: number, single: string, several: string): string {
  return `${count} ${count === 1 ? single : several}`;
}
