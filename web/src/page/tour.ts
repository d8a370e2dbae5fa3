/** The guided tour: seven steps, each of which sets the controls and asks for a guess before it plays. */
import { fill, h } from "./dom.ts";
import { type State, firstState, stateWith } from "./state.ts";

interface Stop {
  title: string;
  text: string;
  question: string;
  answers: readonly string[];
  right: number;
  /** What the run showed, whatever the guess was. */
  seen: string;
  state(): State;
}

const POPULATION = { batchSize: null, seqLen: null } as const;

export const STOPS: readonly Stop[] = [
  {
    title: "What you see",
    text:
      "A model reads some words and then “about”. It has to predict whether “pets” or “cooking” comes next. Each picture is one answer, each row a word, " +
      "and each bar the attention that the word gets. Striped orange words are common to both answers; solid blue ones are distinct. At first each word gets attention in proportion to its frequency (black ticks).",
    question: "“the” is as frequent as “dog”. Which bar will be longest after 40 updates?",
    answers: ["the: it is in every sequence", "dog", "They stay equal"],
    right: 1,
    seen: "“dog” won, and “pan” in the other class. A word that occurs with several answers does not tell you which one is right.",
    state: firstState,
  },
  {
    title: "Scanning",
    text: "Section 6 of the paper: ten classes share a query and one common token, which is as frequent as the most frequent distinct one. Follow the striped bar.",
    question: "What becomes of the attention on the common token?",
    answers: ["It grows", "It stays", "It falls"],
    right: 2,
    seen: "It fell by nearly half, and distinct tokens gained what it lost. Attention goes over all tokens and drops those that say nothing about the answer: it scans.",
    state: () =>
      stateWith(
        { data: { kind: "preset", name: "single-common" }, steps: 100 },
        { ...POPULATION, lrY: 5, lrZ: 5, momentum: 0.9 },
      ),
  },
  {
    title: "The one ahead wins",
    text: "Two distinct words for each answer. “dog” is twice as frequent as “cat”, and “pan” as “salt”.",
    question: "How will “dog” and “cat” share the attention?",
    answers: ["Half and half", "Two to one, as they occur", "“dog” takes nearly all"],
    right: 2,
    seen: "Nearly all. The word that is ahead gains faster, and so gets further ahead. Theorem 3 names the winner before training begins: the star.",
    state: () =>
      stateWith(
        { data: { kind: "preset", name: "rivals" }, steps: 60, theory: "exact" },
        { lrY: 5, lrZ: 10, momentum: 0.9 },
      ),
  },
  {
    title: "Snapping",
    text: "The first setting again, now for 2,000 updates without sampling noise. Time is logarithmic: from one tick to the next, the number of updates grows tenfold.",
    question: "“dog” has all the time it needs. Will it end up with everything?",
    answers: ["Yes, 100%", "No, attention freezes before", "Another word takes over"],
    right: 1,
    seen: "It froze at 83%, after about forty updates. The learning rates never changed, and yet the picture hardly moved again: attention has snapped.",
    state: () =>
      stateWith(
        { data: { kind: "preset", name: "words" }, steps: 2000, logTime: true },
        { ...POPULATION, lrY: 5, lrZ: 10, momentum: 0.9 },
      ),
  },
  {
    title: "A faster decoder",
    text: "The right side of Figure 4 in the paper. The decoder learns ten times as fast as on the left side; attention learns as fast as there. On the left, common tokens ended at 40%.",
    question: "Will attention drop more of the common tokens now, or less?",
    answers: ["More: everything learns faster", "Less: attention has less time", "The same"],
    right: 1,
    seen: "Less: they keep 57%. A fast decoder is soon right about everything. Then there is no error left to learn from, and attention freezes where it is.",
    state: () => stateWith({ data: { kind: "preset", name: "syn-small" }, steps: 100 }, { lrY: 10, momentum: 0.9 }),
  },
  {
    title: "Where theory and SGD disagree",
    text:
      "The solid line is the measured growth of the winner. The dashed and dotted lines are Theorem 4, as published and in its exact form. The paper proves it for a simpler decoder " +
      "gradient, that of Lemma 3. This run is true SGD.",
    question: "Will the measured curve follow the theory?",
    answers: ["Yes", "No, it stays below", "No, it runs ahead"],
    right: 1,
    seen:
      "It stays below. Set “Decoder gradient” to Lemma 3’s and reset to see it closer. Then compare decoder rates of 0.5 and 5 under each gradient: " +
      "in theory and with Lemma 3 the winner grows more under the slow decoder, with true SGD under the fast one.",
    state: () =>
      stateWith(
        { data: { kind: "preset", name: "single-common" }, steps: 10_000, logTime: true, theory: "both" },
        { ...POPULATION, lrY: 1, lrZ: 0.5 },
      ),
  },
  {
    title: "Why it snaps",
    text:
      "The push on attention is proportional to the decoder’s error. As the loss goes to zero, so does the push. Sign SGD takes steps of one size, however small " +
      "the gradient.",
    question: "Will attention still freeze once the loss is zero?",
    answers: ["Yes", "No, common words keep losing", "It never moves at all"],
    right: 1,
    seen:
      "They keep losing long after the loss is zero. Here no word gets ahead, because all take equal steps. So attention snaps because the decoder is done, and " +
      "it picks a winner because gradients have sizes. Now it is your turn: change something.",
    state: () =>
      stateWith(
        { data: { kind: "preset", name: "words" }, steps: 200 },
        { ...POPULATION, optimizer: "sign_sgd", lrY: 0.05, lrZ: 0.01 },
      ),
  },
];

export interface TourEvents {
  load(state: State): void;
  play(): void;
  closed(): void;
}

export class Tour {
  readonly element = h("section", { class: "tour card", "aria-label": "Guided tour", hidden: true, tabindex: "-1" });
  private at = 0;
  private guess: number | null = null;

  constructor(private readonly events: TourEvents) {
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  get open(): boolean {
    return !this.element.hidden;
  }

  start(): void {
    this.element.hidden = false;
    this.go(0);
  }

  close(): void {
    this.element.hidden = true;
    this.events.closed();
  }

  private go(at: number): void {
    this.at = at;
    this.guess = null;
    const stop = STOPS[at];
    this.events.load(stop.state());
    this.render();
    this.element.focus({ preventScroll: true });
    this.show();
  }

  private answer(i: number): void {
    this.guess = i;
    this.events.play();
    this.render();
    this.element.querySelector<HTMLElement>(".seen")?.focus({ preventScroll: true });
    this.show();
  }

  /** Bring the tour into view; on a phone to the top, with the pictures under it. */
  private show(): void {
    this.element.scrollIntoView({ block: innerWidth <= 640 ? "start" : "nearest" });
  }

  private render(): void {
    const stop = STOPS[this.at];
    const answered = this.guess !== null;
    const last = this.at === STOPS.length - 1;
    fill(
      this.element,
      h(
        "div",
        { class: "tour-head" },
        h("h2", {}, `${this.at + 1} of ${STOPS.length}: ${stop.title}`),
        h(
          "button",
          { type: "button", class: "quiet", "aria-label": "Close the tour", onclick: () => this.close() },
          "✕",
        ),
      ),
      !answered && h("p", {}, stop.text),
      h("p", { class: "question" }, stop.question),
      h(
        "div",
        { class: "answers", role: "group", "aria-label": "Your guess" },
        ...stop.answers.map(
          (words, i) =>
            (!answered || i === stop.right || i === this.guess) &&
            h(
              "button",
              {
                type: "button",
                class: answered ? (i === stop.right ? "right" : i === this.guess ? "wrong" : "") : "",
                disabled: answered,
                onclick: () => this.answer(i),
              },
              answered && i === stop.right ? `✓ ${words}` : answered && i === this.guess ? `✗ ${words}` : words,
            ),
        ),
      ),
      answered
        ? h(
            "p",
            { class: "seen", tabindex: "-1", role: "status" },
            h("strong", {}, this.guess === stop.right ? "As you said. " : "Watch. "),
            stop.seen,
          )
        : h("p", { class: "soft" }, "Guess first; then it plays."),
      h(
        "div",
        { class: "tour-foot" },
        h("button", { type: "button", disabled: this.at === 0, onclick: () => this.go(this.at - 1) }, "Back"),
        h(
          "button",
          {
            type: "button",
            class: answered ? "primary" : "",
            onclick: () => (last ? this.close() : this.go(this.at + 1)),
          },
          last ? "Finish" : "Next",
        ),
      ),
    );
  }
}
