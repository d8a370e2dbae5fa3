/** The paper's synthetic figures as states of the explorer. */
import type { Options } from "./options.ts";
import { type State, stateWith } from "./state.ts";

export interface FigureState {
  label: string;
  group: string;
  state: State;
}

/** What the paper says about each, and what to look at here. */
export const STATEMENTS: Record<string, string> = {
  "Figure 2: the four stages":
    "Attention starts in proportion to frequency. It leaves common tokens, the distinct ones that are ahead win, and after t₀ it hardly moves.",
  "Figure 3: growth factor":
    "The paper: the slower the decoder, the later t₀ and the larger the growth after it. Keep the curves of one rate and open another, under both gradients.",
  "Figure 4: Syn-Small, SGD":
    "The paper: attention gathers on the most frequent distinct token; the faster decoder converges sooner, to attention that is less sparse.",
  "Figure 5: Syn-Small, Adam": "The paper: with Adam, different learning rates pick different subsets of the distinct tokens.",
  "Figure 6: entropy, Syn-Medium":
    "The paper: a faster attention rate makes attention sparser; a decoder rate beyond about twice that makes it denser. The phase map below draws this.",
  "Figure 8: the decoder’s growth":
    "h* step by step (exact) and h in continuous time (published), times M, over the measured lead of the right token’s logit.",
  "Figure 9: both rates scaled":
    "The paper: if the ratio of the rates is fixed, the growth at t₀ does not depend on them; after t₀, larger rates give more growth.",
  "Figures 11 and 12: recall, Syn-Medium":
    "The share of distinct tokens whose softmax of z is above 1/M, where all begin; the paper draws it for thresholds around that.",
};

const SMALL = { kind: "preset", name: "syn-small" } as const;
const SECTION_6 = { kind: "preset", name: "single-common" } as const;
const FIGURE_9 = {
  kind: "synthetic",
  sizes: { numQuery: 1, nextPerQuery: 10, numCommon: 1, numDistinct: 20, vocabSize: 10_000 },
} as const;
const POPULATION = { batchSize: null, seqLen: null } as const;

function figure(group: string, label: string, part: Partial<State>, options: Partial<Options> = {}): FigureState {
  return { group, label, state: stateWith(part, options) };
}

export const FIGURES: readonly FigureState[] = [
  figure("Figure 2: the four stages", "Syn-Small, plain SGD", { data: SMALL, steps: 206, theory: "exact" }),
  ...[0.5, 1, 2, 5].flatMap((lrY) =>
    (["true", "modified"] as const).map((decoderGradient) =>
      figure(
        "Figure 3: growth factor",
        `decoder rate ${lrY}, ${decoderGradient === "true" ? "true SGD" : "Lemma 3’s gradient"}`,
        { data: SECTION_6, steps: 10_000, logTime: true, theory: "both" },
        { ...POPULATION, lrY, lrZ: 0.5, decoderGradient },
      ),
    ),
  ),
  figure("Figure 4: Syn-Small, SGD", "left: decoder rate 1", { data: SMALL, steps: 100 }, { momentum: 0.9 }),
  figure("Figure 4: Syn-Small, SGD", "right: decoder rate 10", { data: SMALL, steps: 100 }, { momentum: 0.9, lrY: 10 }),
  ...[0.1, 0.5, 1].map((rate) =>
    figure(
      "Figure 5: Syn-Small, Adam",
      `both rates ${rate}`,
      { data: SMALL, steps: 100 },
      { optimizer: "adam", lrY: rate, lrZ: rate },
    ),
  ),
  ...[1, 3, 10].map((count) =>
    figure(
      "Figure 6: entropy, Syn-Medium",
      `${count} ${count === 1 ? "query" : "queries"}, decoder rate 2, attention rate 1`,
      { data: { kind: "preset", name: `syn-medium-${count}` }, steps: 100 },
      { lrY: 2, momentum: 0.9, init: "uniform" },
    ),
  ),
  ...[0.5, 2].map((lrY) =>
    figure(
      "Figure 8: the decoder’s growth",
      `decoder rate ${lrY}`,
      { data: SECTION_6, steps: 10_000, logTime: true, theory: "both" },
      { ...POPULATION, lrY, lrZ: 0.001, decoderGradient: "modified" },
    ),
  ),
  ...[1, 8].map((rate) =>
    figure(
      "Figure 9: both rates scaled",
      `both rates ${rate}`,
      { data: FIGURE_9, steps: 10_000, logTime: true, theory: "both" },
      { ...POPULATION, lrY: rate, lrZ: rate, decoderGradient: "modified" },
    ),
  ),
  ...[1, 10].map((ratio) =>
    figure(
      "Figures 11 and 12: recall, Syn-Medium",
      `3 queries, ratio of the rates ${ratio}`,
      { data: { kind: "preset", name: "syn-medium-3" }, steps: 100, measure: "recall" },
      { lrY: ratio, momentum: 0.9, init: "uniform" },
    ),
  ),
];
