/** The guided tour: seven steps, each of which sets the controls and asks for a guess before it plays. */
import { fill, h } from "./dom.ts";
import { DEFAULTS } from "./options.ts";
import { type State, startState } from "./state.ts";

interface Stop {
  title: string;
  text: string;
  question: string;
  answers: readonly string[];
  right: number;
  /** What one has seen, whatever one guessed. */
  seen: string;
  state(): State;
  speed: number;
}

function state(part: Partial<State>, options: Partial<State["options"]> = {}): State {
  return { ...startState(), ...part, options: { ...DEFAULTS, ...options } };
}

const POPULATION = { batchSize: null, seqLen: null, momentum: 0 } as const;

export const STOPS: readonly Stop[] = [
  {
    title: "What you see",
    text:
      "Two kinds of sequences, and so two pictures. A row is a token, its bar the share of attention it gets. Striped orange tokens occur in both classes, " +
      "solid blue ones in one class only. The black tick is how often a token occurs: that is where every bar begins.",
    question: "The ten common tokens are as frequent as the most frequent blue one. After 100 updates, which bar is longest?",
    answers: ["A striped one: it occurs everywhere", "The most frequent blue one", "All are equal"],
    right: 1,
    seen: "The most frequent distinct token won in both classes. Common tokens faded: a token that occurs with every answer gives none away.",
    state: () => state({ steps: 100 }),
    speed: 4,
  },
  {
    title: "Scanning",
    text:
      "Ten classes share one query and a single common token. Watch its bar. At first nothing seems to happen: the decoder must learn something before attention " +
      "has anything to gain.",
    question: "The common token is the most frequent of all. What happens to its attention?",
    answers: ["It grows", "It stays", "It falls"],
    right: 2,
    seen: "It falls, slowly at first and then faster, and what it loses goes to distinct tokens. The paper calls this scanning.",
    state: () => state({ data: { kind: "preset", name: "single-common" }, steps: 2000, logTime: true }, { ...POPULATION, lrY: 1, lrZ: 0.5 }),
    speed: 6,
  },
  {
    title: "The one ahead wins",
    text: "Now two distinct tokens per class, of which one is twice as frequent as the other, besides two common ones.",
    question: "Do they share attention in the end?",
    answers: ["Yes, half and half", "As they are frequent: two to one", "The frequent one takes nearly all"],
    right: 2,
    seen: "The one ahead gains faster because it is ahead. Theorem 3 says so: the winner is known before training starts (the star marks it).",
    state: () => state({ data: { kind: "own", classes: UNEVEN() }, steps: 300, theory: "exact" }, { ...POPULATION, lrY: 5, lrZ: 5 }),
    speed: 5,
  },
  {
    title: "Snapping",
    text: "The same as at the beginning, but a thousand times longer, in logarithmic time: each tick is ten times as many updates as the one before.",
    question: "Attention has time now. Does the winner end up with everything?",
    answers: ["Yes, 100%", "No: the pattern freezes before", "It moves on to another token"],
    right: 1,
    seen: "It froze. The learning rate never changed, and yet attention all but stopped, long before it was on one token alone: it snapped.",
    state: () => state({ steps: 100_000, logTime: true }, { ...POPULATION }),
    speed: 7,
  },
  {
    title: "The decoder’s rate",
    text: "Figure 4 of the paper, right: the decoder learns ten times as fast as before, attention as fast as before.",
    question: "Will attention end on fewer tokens, or on more?",
    answers: ["Fewer: all learns faster", "More: attention has less time to choose", "The same"],
    right: 1,
    seen: "More. A fast decoder gets the answers right early; then there is nothing left to learn, and attention freezes while it is still spread out.",
    state: () => state({ steps: 100 }, { lrY: 10 }),
    speed: 4,
  },
  {
    title: "Where theory and SGD part",
    text:
      "The dashed and dotted curves are Theorem 4 as published and in its exact form; the solid one is measured. The paper proves it for Lemma 3’s decoder gradient. " +
      "This is true SGD.",
    question: "Does the measured growth factor follow the theory?",
    answers: ["Yes", "It grows far less", "It grows far more"],
    right: 1,
    seen:
      "Under true SGD it grows far less. Set “Decoder gradient” to Lemma 3’s and play again. Then try η_Y = 0.5 and 5 with each: theory says the slow decoder wins, " +
      "true SGD says the opposite.",
    state: () => state({ data: { kind: "preset", name: "single-common" }, steps: 10_000, logTime: true, theory: "both" }, { ...POPULATION, lrY: 1, lrZ: 0.5 }),
    speed: 7,
  },
  {
    title: "Why it snaps",
    text:
      "The gradient that moves attention is proportional to the decoder’s error. As the loss falls, that push fades, and attention stands still. " +
      "Sign SGD makes every step equally large, however small the gradient.",
    question: "Will attention still snap?",
    answers: ["Yes", "No, it goes on", "It never moves at all"],
    right: 1,
    seen: "It goes on until one token has everything. So snapping is a matter of vanishing gradients: attention freezes because the decoder is done. Now it is your turn.",
    state: () => state({ steps: 400 }, { ...POPULATION, optimizer: "sign_sgd", lrY: 0.05, lrZ: 0.05 }),
    speed: 5,
  },
];

/** Two classes of one query: two common tokens, and two distinct ones of which one is twice as frequent. */
function UNEVEN(): { vocabSize: number; tokens: number[]; probs: number[][]; query: number[]; nextToken: number[]; weights: number[]; tokenNames: string[] } {
  return {
    vocabSize: 9,
    tokens: [0, 1, 2, 3, 4, 5],
    probs: [[0.2, 0.2, 0.2, 0.4, 0, 0], [0.2, 0.2, 0, 0, 0.2, 0.4]],
    query: [6, 6],
    nextToken: [7, 8],
    weights: [0.5, 0.5],
    tokenNames: ["the", "a", "rare A", "frequent A", "rare B", "frequent B", "query", "answer A", "answer B"],
  };
}

export interface TourEvents {
  load(state: State, speed: number): void;
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
    this.events.load(stop.state(), stop.speed);
    this.render();
    this.element.focus();
  }

  private answer(i: number): void {
    this.guess = i;
    this.events.play();
    this.render();
    this.element.querySelector<HTMLElement>(".seen")?.focus();
  }

  private render(): void {
    const stop = STOPS[this.at];
    const answered = this.guess !== null;
    const last = this.at === STOPS.length - 1;
    fill(
      this.element,
      h("div", { class: "tour-head" }, h("h2", {}, `${this.at + 1} of ${STOPS.length}: ${stop.title}`),
        h("button", { type: "button", class: "quiet", "aria-label": "Close the tour", onclick: () => this.close() }, "✕")),
      h("p", {}, stop.text),
      h("p", { class: "question" }, stop.question),
      h("div", { class: "answers", role: "group", "aria-label": "Your guess" },
        ...stop.answers.map((words, i) =>
          h("button", { type: "button", class: answered ? (i === stop.right ? "right" : i === this.guess ? "wrong" : "") : "", disabled: answered, onclick: () => this.answer(i) },
            answered && i === stop.right ? `✓ ${words}` : answered && i === this.guess ? `✗ ${words}` : words)),
      ),
      answered
        ? h("p", { class: "seen", tabindex: "-1", role: "status" }, h("strong", {}, this.guess === stop.right ? "As you said. " : "Watch. "), stop.seen)
        : h("p", { class: "soft" }, "Guess first; then it plays."),
      h("div", { class: "tour-foot" },
        h("button", { type: "button", disabled: this.at === 0, onclick: () => this.go(this.at - 1) }, "Back"),
        h("button", { type: "button", class: answered ? "primary" : "", onclick: () => (last ? this.close() : this.go(this.at + 1)) }, last ? "Finish" : "Next")),
    );
  }
}
